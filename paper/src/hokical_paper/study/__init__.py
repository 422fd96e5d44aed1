"""Methods compared over a folder of classifiers."""
