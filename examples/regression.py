# SPDX-License-Identifier: Apache-2.0
"""Hours of work explained by age and years of education, by sex, from released moments (Adult)."""

from __future__ import annotations

from importlib.resources import as_file, files

import sfumato as sf

COLUMNS = ["age", "education-num", "hours-per-week"]

data = files("sfumato") / "data"
with as_file(data / "adult.toml") as schema, as_file(data / "adult.parquet") as table:
    domain = sf.Domain.from_toml(schema)
    work = sf.moments(domain, COLUMNS, by=["sex"]) | sf.marginals(domain, [("sex",)])
    plan = sf.plan(work, sf.Budget(rho=0.1))
    result = plan.release(table)

print(result.answers(group="variance hours-per-week by sex").round(2).to_string(index=False))
fit = sf.regress(result, "hours-per-week", ["age", "education-num"], by="sex")
print(fit.coefficients.round(3).to_string(index=False))
print(fit.fits.round(3).to_string(index=False))
