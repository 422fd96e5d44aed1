"""The paper's claims over many random divisions of the examples."""
