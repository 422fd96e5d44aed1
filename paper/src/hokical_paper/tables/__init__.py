"""Tables from results: the data of a table, its builders and its formats."""
