//! Registered memory against a plain model of the standard: a list of areas, the newest last.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_bsp::registry::{Event, NULL_AREA, Registry, RegistryError};

const P: usize = 3;

/// What a process calls an area by: nothing, or one of few addresses, so that they come again.
fn address(nth: usize, pid: usize, choice: u8) -> usize {
    match choice % 4 {
        0 if pid > 0 => 0,
        n => 1000 * (pid + 1) + 10 * ((nth + usize::from(n)) % 3 + 1),
    }
}

/// The model: every area with each process's address and size, in the order of registration.
type Areas = Vec<([usize; P], [u64; P])>;

proptest! {
    #[test]
    fn an_address_means_the_newest_area_that_is_registered_by_it(
        steps in vec(vec((any::<bool>(), any::<[u8; P]>(), 0u64..100), 0..5), 1..12),
    ) {
        let mut processes: Vec<Registry<()>> = (0..P).map(Registry::new).collect();
        let (mut model, mut pending): (Areas, Areas) = (Vec::new(), Vec::new());
        for (step, calls) in steps.into_iter().enumerate() {
            pending.clone_from(&model);
            for (nth, (push, choices, size)) in calls.into_iter().enumerate() {
                if push || pending.is_empty() {
                    let bases: [usize; P] = std::array::from_fn(|pid| address(nth + step, pid, choices[pid]));
                    let sizes: [u64; P] = std::array::from_fn(|pid| if bases[pid] == 0 { NULL_AREA } else { size + pid as u64 });
                    for (pid, process) in processes.iter_mut().enumerate() {
                        process.push(bases[pid], sizes[pid], ());
                    }
                    pending.push((bases, sizes));
                } else {
                    // Process 0 has an address always: what is the newest by it, all take back, if
                    // the same is so for all that have one.
                    let base = pending[usize::from(choices[0]) % pending.len()].0[0];
                    let at = pending.iter().rposition(|(bases, _)| bases[0] == base).expect("one");
                    let bases = pending[at].0;
                    let newest = (0..P).all(|pid| bases[pid] == 0 || pending.iter().rposition(|(b, _)| b[pid] == bases[pid]) == Some(at));
                    if newest {
                        for (pid, process) in processes.iter_mut().enumerate() {
                            prop_assert_eq!(process.pop(bases[pid], ()), Ok(()));
                        }
                        pending.remove(at);
                    }
                }
            }
            // Nothing of it holds yet.
            look(&processes, &model)?;
            let events: Vec<Vec<Event>> = processes.iter().map(|p| p.events().collect()).collect();
            let events: Vec<Vec<Event>> = events.into_iter().map(|e| e.into_iter().map(|e| Event::decode(&e.encode()).expect("one")).collect()).collect();
            let views: Vec<&[Event]> = events.iter().map(Vec::as_slice).collect();
            for process in &mut processes {
                prop_assert!(process.agree(&views).is_ok());
            }
            model.clone_from(&pending);
            look(&processes, &model)?;
        }
    }

    #[test]
    fn processes_that_differ_are_found_by_all(
        calls in vec((0u8..3, 1u64..5), 1..6), odd in 0..P, at in 0usize..6, how in 0u8..3,
    ) {
        let mut processes: Vec<Registry<u32>> = (0..P).map(Registry::new).collect();
        for process in &mut processes {
            process.push(8, 8, 0);
        }
        settle(&mut processes);
        for (pid, process) in processes.iter_mut().enumerate() {
            for (nth, (kind, value)) in calls.iter().enumerate() {
                let differs = pid == odd && nth == at % calls.len();
                match (kind, differs, how) {
                    (_, true, 0) => continue,
                    (_, true, 1) => process.tag_size(value + 1, 7),
                    (_, true, _) => { process.push(16, *value, 7); process.push(16, *value, 7) }
                    (0, ..) => process.push(16, *value, 7),
                    _ => process.tag_size(*value, 7),
                }
            }
        }
        let events: Vec<Vec<Event>> = processes.iter().map(|p| p.events().collect()).collect();
        let same = events.iter().all(|e| e.iter().map(|e| e.name()).eq(events[0].iter().map(|e| e.name())))
            && events.iter().all(|e| e.iter().filter(|e| matches!(e, Event::TagSize(_))).eq(events[0].iter().filter(|e| matches!(e, Event::TagSize(_)))));
        let views: Vec<&[Event]> = events.iter().map(Vec::as_slice).collect();
        for process in &mut processes {
            prop_assert_eq!(process.agree(&views).is_ok(), same);
        }
    }
}

fn settle(processes: &mut [Registry<u32>]) {
    let events: Vec<Vec<Event>> = processes.iter().map(|p| p.events().collect()).collect();
    let views: Vec<&[Event]> = events.iter().map(Vec::as_slice).collect();
    for process in processes {
        process.agree(&views).expect("the same");
    }
}

/// Each process finds by each address what the model has, and all by the same slot.
fn look(processes: &[Registry<()>], model: &Areas) -> Result<(), TestCaseError> {
    for (pid, process) in processes.iter().enumerate() {
        prop_assert_eq!(process.len(), model.len());
        for base in model.iter().map(|(bases, _)| bases[pid]).filter(|base| *base != 0) {
            let (bases, sizes) = model.iter().rev().find(|(bases, _)| bases[pid] == base).expect("one");
            let slot = process.find(base);
            prop_assert!(slot.is_ok(), "{:?}", slot);
            let slot = slot.unwrap_or_default();
            for other in 0..P {
                prop_assert_eq!(process.area(slot, other).map(|(_, size)| size), Some(sizes[other]));
                prop_assert_eq!(processes[other].area(slot, other), Some((bases[other], sizes[other])));
            }
        }
        prop_assert_eq!(process.find(7), Err(RegistryError::Unknown));
    }
    Ok(())
}

#[test]
fn an_address_inside_of_an_area_is_told_by_its_distance() {
    let mut one = [Registry::new(0)];
    one[0].push(1000, 100, 0);
    assert_eq!(one[0].find(1000), Err(RegistryError::NotYet));
    settle(&mut one);
    assert_eq!(one[0].find(1000), Ok(0));
    assert_eq!(one[0].find(1099), Err(RegistryError::Inside(99)));
    assert_eq!(one[0].find(1100), Err(RegistryError::Unknown));
    assert_eq!(one[0].pop(0, 0), Err(RegistryError::NullUnknown));
    assert_eq!(one[0].pop(1001, 0), Err(RegistryError::Inside(1)));
}

#[test]
fn what_this_superstep_has_taken_back_is_told_as_such() {
    let mut one = [Registry::new(0)];
    for bytes in [100, 50] {
        one[0].push(1000, bytes, 0);
    }
    settle(&mut one);
    assert_eq!([(); 3].map(|()| one[0].pop(1000, 0)), [Ok(()), Ok(()), Err(RegistryError::TakenBack)]);
    assert_eq!(one[0].find(1000), Ok(1));
    settle(&mut one);
    assert_eq!(one[0].pop(1000, 0), Err(RegistryError::Unknown));
}

/// What all have registered as `NULL` goes newest first, whatever lies between, and however much it
/// is.
#[test]
fn areas_that_nobody_can_name_are_taken_back_newest_first() {
    const MANY: u64 = 20_000;
    let mut two = [0, 1].map(Registry::new);
    for nth in 0..MANY {
        two[0].push(0, NULL_AREA, 0);
        // Of every second one the other process has memory.
        if nth % 2 == 0 { two[1].push(0, NULL_AREA, 0) } else { two[1].push(1000, nth, 0) }
    }
    settle(&mut two);
    for left in (0..MANY / 2).rev() {
        for process in &mut two {
            assert_eq!(process.pop(0, 0), Ok(()));
        }
        if left % 1000 == 0 {
            settle(&mut two);
            assert_eq!(two[0].len() as u64, MANY / 2 + left);
        }
    }
    // Those of which it has memory are there, the newest first.
    for nth in (0..MANY).rev().filter(|nth| nth % 2 == 1).take(5) {
        let slot = two[1].find(1000).expect("registered");
        assert_eq!(two[1].area(slot, 1), Some((1000, nth)));
        assert_eq!((two[0].pop(0, 0), two[1].pop(1000, 0)), (Ok(()), Ok(())));
        settle(&mut two);
    }
}
