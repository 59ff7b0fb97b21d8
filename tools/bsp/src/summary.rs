//! The supersteps of a run by the line of the program that ended them, and what a machine's
//! parameters predict of each.

use serde::Serialize;

use crate::estimate::Costs;
use crate::ledger::{Carried, Profile, Step};

/// Supersteps that one line of the program ended. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The line, as `file:line`.
    pub place: String,
    /// How many.
    pub supersteps: u64,
    /// Sum of the longest computations, ...
    pub work_ns: u64,
    /// ... and of what a process computed on average.
    pub work_mean_ns: f64,
    /// What a process waited for others on average.
    pub wait_mean_ns: f64,
    /// Sum of what supersteps took beyond their longest computation: their communication and
    /// synchronisation.
    pub cost_ns: u64,
    /// Sum of the times of supersteps.
    pub span_ns: u64,
    /// Sum of h: most bytes that a process sent or got.
    pub h_bytes: u64,
    /// Bytes that were sent by all.
    pub out_bytes: u64,
    /// Bytes that were got by all.
    pub in_bytes: u64,
    /// Messages of `bsp_send`.
    pub letters: u64,
    /// h g + l, summed; none without parameters.
    pub predicted_cost_ns: Option<f64>,
    /// What went over the wire.
    pub carried: Carried,
}

impl Row {
    /// Of one superstep alone.
    #[must_use]
    pub fn of(profile: &Profile, step: &Step, costs: Option<&Costs>) -> Row {
        let mut row = Row { place: profile.place(step).to_owned(), ..Row::default() };
        row.add(step, profile.processes, costs);
        row
    }

    fn add(&mut self, step: &Step, processes: u32, costs: Option<&Costs>) {
        let mean = |sum: u64| sum as f64 / f64::from(processes.max(1));
        self.supersteps += 1;
        self.work_mean_ns += mean(step.work_sum_ns);
        self.wait_mean_ns += mean(step.wait_sum_ns);
        let sums = [
            (&mut self.work_ns, step.work_max_ns),
            (&mut self.cost_ns, step.cost_ns()),
            (&mut self.span_ns, step.span_max_ns),
            (&mut self.h_bytes, step.h_bytes()),
            (&mut self.out_bytes, step.out_bytes),
            (&mut self.in_bytes, step.in_bytes),
            (&mut self.letters, step.letters),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.carried.add(&step.carried);
        if let Some(costs) = costs {
            *self.predicted_cost_ns.get_or_insert(0.0) += costs.superstep_ns(0, step.h_bytes());
        }
    }

    /// How evenly the processes computed: average over longest, percent; none where nobody
    /// computed.
    #[must_use]
    pub fn balance_percent(&self) -> Option<f64> {
        (self.work_ns > 0).then(|| 100.0 * self.work_mean_ns / self.work_ns as f64)
    }

    /// What was predicted with what was computed, over what was measured; none without parameters.
    #[must_use]
    pub fn predicted_ratio(&self) -> Option<f64> {
        let predicted = self.work_ns as f64 + self.predicted_cost_ns?;
        (self.span_ns > 0).then(|| predicted / self.span_ns as f64)
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Where it was read.
    pub file: String,
    /// The folder that the files of all places lie in.
    pub root: String,
    /// How many processes.
    pub processes: u32,
    /// By place, the costliest first.
    #[serde(rename = "places")]
    pub rows: Vec<Row>,
    /// Of all of them.
    pub total: Row,
    /// What the prediction is from; none without parameters.
    pub costs: Option<Costs>,
    /// What should be known. Each a line.
    pub notices: Vec<String>,
}

/// Adds up a run; `costs` are those of its number of processes, with a word on where they come
/// from.
#[must_use]
pub fn summary(profile: &Profile, costs: Option<(Costs, Option<String>)>) -> Summary {
    let (costs, word) = costs.map_or((None, None), |(costs, word)| (Some(costs), word));
    let mut rows: Vec<Row> = vec![Row::default(); profile.places.len()];
    let mut total = Row { place: "all".into(), ..Row::default() };
    for step in &profile.steps {
        if let Some(row) = rows.get_mut(step.place as usize) {
            row.add(step, profile.processes, costs.as_ref());
            if row.supersteps == 1 {
                profile.place(step).clone_into(&mut row.place);
            }
        }
        total.add(step, profile.processes, costs.as_ref());
    }
    rows.retain(|row| row.supersteps > 0);
    rows.sort_by(|a, b| b.span_ns.cmp(&a.span_ns).then_with(|| a.place.cmp(&b.place)));
    let mut notices: Vec<String> = word.into_iter().collect();
    let elsewhere = profile.steps.iter().filter(|step| step.is_elsewhere_too).count();
    if elsewhere > 0 {
        notices.push(format!(
            "in {elsewhere} supersteps processes were at different lines: they stand at that of process 0"
        ));
    }
    let apart = profile.steps.iter().filter(|step| step.out_bytes != step.in_bytes).count();
    if apart > 0 {
        notices.push(format!("in {apart} supersteps other bytes were sent than got: the ledger contradicts itself"));
    }
    Summary {
        file: profile.name.clone(),
        root: profile.root.clone(),
        processes: profile.processes,
        rows,
        total,
        costs,
        notices,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let step = |place, work: u64, span: u64, h: u64| Step {
            place,
            work_max_ns: work,
            work_sum_ns: work + work / 2,
            wait_sum_ns: 100,
            talk_max_ns: 50,
            span_max_ns: span,
            out_max_bytes: h,
            in_max_bytes: h / 2,
            out_bytes: h,
            in_bytes: h,
            ..Step::default()
        };
        Profile {
            name: "run".into(),
            processes: 2,
            places: vec!["a.c:1".into(), "a.c:9".into(), String::new()],
            root: String::new(),
            steps: vec![
                step(0, 1000, 1500, 100),
                step(1, 400, 4400, 6000),
                step(1, 400, 3600, 4000),
                step(2, 0, 10, 0),
            ],
        }
    }

    #[test]
    fn supersteps_are_added_up_by_place_and_the_costliest_comes_first() {
        let summary = summary(&profile(), None);
        let places: Vec<&str> = summary.rows.iter().map(|row| row.place.as_str()).collect();
        assert_eq!(places, ["a.c:9", "a.c:1", "?"]);
        let row = &summary.rows[0];
        assert_eq!((row.supersteps, row.work_ns, row.cost_ns, row.span_ns, row.h_bytes), (2, 800, 7200, 8000, 10_000));
        assert_eq!(row.balance_percent(), Some(75.0));
        assert_eq!((row.predicted_cost_ns, row.predicted_ratio()), (None, None));
        assert_eq!(summary.rows[2].balance_percent(), None);
        assert_eq!((summary.total.supersteps, summary.total.out_bytes), (4, 10_100));
        assert!(summary.notices.is_empty());
    }

    #[test]
    fn the_prediction_is_w_and_h_g_and_l_of_each_superstep() {
        let costs = Costs { p: 2, l_ns: 100.0, g_ns_per_byte: 0.5 };
        let summary = summary(&profile(), Some((costs, Some("from p = 4".into()))));
        let row = &summary.rows[0];
        assert_eq!(row.predicted_cost_ns, Some(2.0 * 100.0 + 10_000.0 * 0.5));
        assert_eq!(row.predicted_ratio(), Some((800.0 + 5200.0) / 8000.0));
        assert_eq!(summary.notices, ["from p = 4"]);
    }

    #[test]
    fn what_does_not_agree_is_said() {
        let mut profile = profile();
        profile.steps[0].is_elsewhere_too = true;
        profile.steps[1].in_bytes = 1;
        let notices = summary(&profile, None).notices;
        assert!(notices.len() == 2 && notices[0].contains("in 1 supersteps") && notices[1].contains("contradicts"));
    }
}
