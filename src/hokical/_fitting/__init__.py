"""What fits are made of: sums over examples, solvers, searches."""

from hokical._fitting import compiled as compiled
