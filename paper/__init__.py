"""The distribution `hokical-paper`: its package is `src/hokical_paper`, its tests
`paper.tests`.
"""
