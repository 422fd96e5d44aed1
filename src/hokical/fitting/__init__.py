"""What fits are made of: sums over examples, solvers, searches."""

from hokical.fitting import compiled as compiled
