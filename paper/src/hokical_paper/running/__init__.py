"""Every method on every pair: what is run, with which code, and where results are stored."""
