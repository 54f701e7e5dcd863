"""From programs to models and reports, as users ask for them.

`models` traces programs and models each of them once, with options that are given (`given_options`)
or configured (`configured_options`); `reports` makes a `Report` of a model. Whenever a program is
compiled (`compilation`), there is a `verdict` on whether it fits, and files about it
(`report_files`) if environment or configuration ask for them (`requested_outputs`).
"""
