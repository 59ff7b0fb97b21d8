//! The links of a source's `Network`: a machine where none is given (`spec/prediction.md` 8).

use std::collections::BTreeMap;

use weir_annotations::program::{Network, Program};
use weir_annotations::{Diagnostic, Place};
use weir_predict::machine::{GraphLink, of_graph};
use weir_predict::{Machine, Wishes};

use crate::error::Failure;
use crate::input;

/// The network that the source means: the default, or the only one. With links.
fn network(program: &Program) -> Option<&Network> {
    let all = &program.machine.networks;
    let meant = match &program.machine.network {
        Some((name, _)) => all.iter().find(|network| network.name == *name),
        None if all.len() == 1 => all.first(),
        None => None,
    };
    meant.filter(|network| !network.links.is_empty())
}

/// A machine that was given: that the source has another one is told.
pub fn beside(mut machine: Machine, program: &Program) -> Machine {
    if let Some(network) = network(program) {
        machine
            .notices
            .push(format!("the links of Network `{}` are not used: the machine is that of --machine", network.name));
    }
    machine
}

/// The machine that the links of the source describe.
pub fn machine(program: &Program, wishes: &Wishes) -> Result<Machine, Result<Vec<Diagnostic>, Failure>> {
    let Some(network) = network(program) else {
        let several = program.machine.networks.len() > 1 && program.machine.network.is_none();
        let said = if several {
            "which machine? --machine, or `Default network` in the source, which has several"
        } else {
            "which machine? --machine, or a `Network` with links in the source"
        };
        return Err(Err(Failure::Usage(said.to_owned())));
    };
    let fault = |place: Place, said: String| Ok(vec![Diagnostic::error("network", place, said)]);
    let mut profiles: BTreeMap<&str, Machine> = BTreeMap::new();
    let mut links = Vec::new();
    for link in &network.links {
        if !profiles.contains_key(link.profile.as_str()) {
            let path = input::beside(&link.profile, link.place, &program.files);
            let profile = input::machine(&path, wishes).map_err(|failure| match failure {
                Failure::Failed(said) | Failure::Model(said) => fault(link.place, said),
                other => Err(other),
            })?;
            profiles.insert(&link.profile, profile);
        }
        let Some(profile) = profiles.get(link.profile.as_str()) else { continue };
        links.push(GraphLink {
            name: link.name.clone(),
            from: link.from.clone(),
            to: link.to.clone(),
            path: profile.inter.clone(),
        });
    }
    let first = network.links.first().and_then(|link| profiles.get(link.profile.as_str()));
    let Some(mut base) = first.cloned() else { return Err(fault(network.place, "it has no links".to_owned())) };
    base.name = format!("network {}", network.name);
    base.notices = profiles
        .iter()
        .flat_map(|(name, profile)| profile.notices.iter().map(move |notice| format!("{name}: {notice}")))
        .collect();
    of_graph(base, links).map_err(|error| fault(network.place, format!("Network `{}`: {error}", network.name)))
}
