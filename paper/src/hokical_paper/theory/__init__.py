"""The paper's theorems on data."""
