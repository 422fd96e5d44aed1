"""Files from results: tables, figures, one HTML page, and the documentation."""
