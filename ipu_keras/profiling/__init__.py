"""From programs to models and reports, as users ask for them.

`models` traces a program and models it once, with options that are given (`given_options`) or
configured (`configured_options`); `reports` makes a `Report` of a model. Whenever a program is
compiled (`compilation`), `verdict` judges whether it fits and writes files about it
(`report_files`) if environment or configuration ask for them (`requested_outputs`).
"""
