"""The paper's figures, and a few more."""
