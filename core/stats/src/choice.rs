//! The choice among the families that were fitted to one sample.

use crate::fit::{Fit, fit};
use crate::goodness::{Goodness, GoodnessOptions, PMethod, random_subset, test_family, test_fitted, test_given};
use crate::random::Random;
use crate::{Error, Family, Sample};

/// A subset that is at most so small a part of what was fitted is tested as if the fit had been
/// given beforehand.
const SMALL_PART: usize = 20;

/// A family's fit with its tests.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Candidate {
    /// The fit to all values.
    pub fit: Fit,
    /// Tests on a random subset. Where that is more than a twentieth of all, the family is fitted
    /// to the subset anew and the p-values come from a parametric bootstrap, for those that the
    /// choice depends on: families of greater BIC than the chosen one, and those that the table
    /// rejects already, keep the table's p-values, which are upper bounds.
    pub subset: Goodness,
}

/// All families tried on one cell.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FitReport {
    /// Those that could be fitted, best BIC first.
    pub candidates: Vec<Candidate>,
    /// Those that could not, with the reason.
    pub failed: Vec<(Family, String)>,
    /// Place of the chosen one in `candidates`.
    pub chosen: Option<usize>,
    /// Why, in a sentence for people.
    pub reason: String,
}

impl FitReport {
    /// The chosen candidate.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.get(self.chosen?)
    }
}

/// Fits `families` and chooses: the least BIC among those that no test on the subset rejects, or,
/// when all are rejected, the least BIC of all, which the reason says then.
///
/// # Errors
/// [`Error::Argument`] for options out of range. Families that do not fit are in
/// [`FitReport::failed`], not an error.
pub fn fit_all(
    sample: &Sample,
    families: &[Family],
    options: &GoodnessOptions,
    random: &mut Random,
) -> Result<FitReport, Error> {
    options.check()?;
    let subset = random_subset(sample, options.subset, random);
    let by_table = sample.count() >= SMALL_PART * subset.count();
    let test = if by_table { test_given } else { test_fitted };
    let mut candidates = Vec::new();
    let mut failed = Vec::new();
    for &family in families {
        match fit(family, sample) {
            Ok(fit) => candidates.push(Candidate { fit, subset: test(&fit.distribution, &subset) }),
            Err(error) => failed.push((family, error.to_string())),
        }
    }
    candidates.sort_by(|a, b| a.fit.bic.total_cmp(&b.fit.bic));
    let mut passing = None;
    let mut place = 0;
    while passing.is_none() && place < candidates.len() {
        let candidate = &mut candidates[place];
        // A rejection by an upper bound stands; an acceptance by it says nothing.
        if !by_table && candidate.subset.passes(options.significance) {
            match test_family(candidate.fit.distribution.family(), &subset, options, random) {
                Ok(tested) => candidate.subset = tested,
                Err(error) => {
                    let candidate = candidates.remove(place);
                    failed.push((candidate.fit.distribution.family(), error.to_string()));
                    continue;
                }
            }
        }
        passing = candidate.subset.passes(options.significance).then_some(place);
        place += 1;
    }
    let chosen = passing.or((!candidates.is_empty()).then_some(0));
    let reason = reason(&candidates, chosen, passing.is_some(), options.significance);
    Ok(FitReport { candidates, failed, chosen, reason })
}

fn reason(candidates: &[Candidate], chosen: Option<usize>, passes: bool, significance: f64) -> String {
    let Some(place) = chosen else { return "no family could be fitted".into() };
    let best = &candidates[place];
    let method = match best.subset.anderson_darling.method {
        PMethod::Table => "by table".to_owned(),
        PMethod::TableUpperBound => "at most, by table".to_owned(),
        PMethod::Bootstrap(replicates) => format!("by {replicates} replicates"),
    };
    let tests = format!(
        "on {} values KS p {:.3}, AD p {:.3}, chi-square p {:.3} {method}",
        best.subset.count, best.subset.kolmogorov_smirnov.p, best.subset.anderson_darling.p, best.subset.chi_square.p
    );
    let name = best.fit.distribution.family();
    if !passes {
        return format!("{name}: least BIC, but every family is rejected at {significance} ({tests})");
    }
    let ahead = match place {
        0 => String::new(),
        _ => {
            let names: Vec<&str> = candidates[..place].iter().map(|c| c.fit.distribution.family().name()).collect();
            format!("; rejected although of less BIC: {}", names.join(", "))
        }
    };
    let next = candidates[place + 1..].iter().find(|c| c.subset.passes(significance));
    let margin = match next {
        Some(next) => {
            let apart = next.fit.bic - best.fit.bic;
            let told = if apart < 2.0 { " (hardly to be told apart)" } else { "" };
            format!(
                "least BIC of the families not rejected, {apart:.1} before {}{told}",
                next.fit.distribution.family()
            )
        }
        None => "the only family not rejected".into(),
    };
    format!("{name}: {margin}; {tests}{ahead}")
}
