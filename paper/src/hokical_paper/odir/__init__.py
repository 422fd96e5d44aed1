"""Matrix scaling and Dirichlet calibration with ODIR penalties, methods of the paper's
comparison.

Where this distribution is installed, `hokical.make("ms_odir")` and
`hokical.make("dir_odir")` make them, and `hokical.load` reads their files.
"""

from hokical_paper.odir.estimator import DirichletODIR, MatrixScalingODIR
from hokical_paper.odir.rule import DirichletRule, MatrixRule

__all__ = ["DirichletODIR", "DirichletRule", "MatrixRule", "MatrixScalingODIR"]
