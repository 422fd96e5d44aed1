"""What fits are made of: sums over examples, solvers, searches."""
