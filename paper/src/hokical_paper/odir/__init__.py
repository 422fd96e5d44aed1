"""Matrix scaling and Dirichlet calibration with ODIR penalties, methods of the paper's comparison.

Where this distribution is installed, `hokical.make("ms_odir")` and `hokical.make("dir_odir")` make
them. Their rules are part of hokical, which reads and answers from their files without it.
"""

from hokical_paper.odir.estimator import DirichletODIR, MatrixScalingODIR

__all__ = ["DirichletODIR", "MatrixScalingODIR"]
