//! From a program to a model: parameters, the number of processes and the processor are put in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::exparse::suggestion;
use crate::expr::{Expr, NUMPROCS, PROCNUM, Slot, Value};
use crate::place::{Diagnostic, Place};
use crate::program::{Law, Model, Network, Op, OpKind, Parameter, Pc, ProcessorId, Program, Table};

/// What is known before a run.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// How many processes; at least 1.
    pub numprocs: u32,
    /// Values of parameters by name.
    pub parameters: BTreeMap<String, Value>,
    /// The processor whose serial times count; none: the source's default, or the only one there
    /// is.
    pub processor: Option<String>,
    /// The clock of all processors in MHz, in place of the source's `speed`.
    pub speed_mhz: Option<f64>,
    /// The data of the streams, in the order of [`Program::streams`], each with the stream's
    /// columns at least.
    pub streams: Vec<Arc<Table>>,
}

/// A model, and what is noteworthy about it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The model.
    pub model: Model,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
}

/// How many evaluations of conditions the check of branches may cost.
const MAX_CHECKS: usize = 1_000_000;
/// How many processes are named in a warning.
const MAX_NAMED: usize = 8;

impl Program {
    /// The program for a setting.
    ///
    /// # Errors
    /// All that is missing or does not fit, at once.
    pub fn model(&self, setting: &Setting) -> Result<Prepared, Vec<Diagnostic>> {
        let mut faults = Vec::new();
        self.unknown(setting, &mut faults);
        self.missing(setting, &mut faults);
        if setting.numprocs == 0 {
            faults.push(Diagnostic::error("numprocs", Place::default(), "a program has at least one process"));
        }
        let streams = self.tables(setting, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let (known, prologue) = self.known(setting, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let processor = self.processor(setting, &mut faults);
        let mut ops = self.folded(&known, prologue);
        choose_times(&mut ops, processor, &self.processor_name(processor), &mut faults);
        impossible(&ops, &mut faults);
        let slowness = self.slowness(setting, processor, &known, &mut faults);
        let network = self.network(&mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let warnings = self.uncovered(setting.numprocs, &known);
        let slots = self.slots.iter().zip(&known).map(|(slot, value)| value.unwrap_or(slot.initial)).collect();
        let model = Model {
            files: Arc::clone(&self.files),
            ops,
            slots,
            slot_names: self.slots.iter().map(|slot| slot.name.clone()).collect(),
            numprocs: setting.numprocs,
            slowness,
            streams,
            requests: self.requests.clone(),
            fields: self.fields.clone(),
            network,
        };
        Ok(Prepared { model, warnings })
    }

    /// The number of processes that the source gives, if it gives one.
    ///
    /// # Errors
    /// That it is not one of at least 1.
    pub fn default_numprocs(&self, parameters: &BTreeMap<String, Value>) -> Result<Option<u32>, Diagnostic> {
        let Some((expr, place)) = &self.machine.numprocs else { return Ok(None) };
        let setting = Setting { parameters: parameters.clone(), ..Setting::default() };
        let (known, _) = self.known(&setting, &mut Vec::new());
        let count = expr.folded(&|slot| value_at(&known, slot)).constant().and_then(Value::as_i64);
        let count = count.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        count
            .map(Some)
            .ok_or_else(|| Diagnostic::error("numprocs", *place, "the default of numprocs is no number from 1"))
    }

    /// Names that were given and that nothing knows.
    fn unknown(&self, setting: &Setting, faults: &mut Vec<Diagnostic>) {
        let known: Vec<&str> = self.parameters.iter().map(|p| p.name.as_str()).collect();
        for name in setting.parameters.keys().filter(|name| !known.contains(&name.as_str())) {
            let fault = Diagnostic::error(
                "unknown-parameter",
                Place::default(),
                format!("the program uses no parameter `{name}`"),
            );
            let help = suggestion(name, &known).unwrap_or_else(|| match known.as_slice() {
                [] => "it uses none".to_owned(),
                all => format!("it uses {}", all.join(", ")),
            });
            faults.push(fault.with_help(help));
        }
    }

    /// Parameters that the code needs and that have no value.
    fn missing(&self, setting: &Setting, faults: &mut Vec<Diagnostic>) {
        let mut used: BTreeSet<Slot> = BTreeSet::new();
        let mut note = |expr: &Expr| {
            expr.mentions(&mut |slot| {
                used.insert(slot);
                false
            });
        };
        for op in &self.ops {
            op.clone().each_expr(&mut |expr| note(expr));
        }
        let machine = &self.machine;
        machine.speed_mhz.iter().for_each(|(expr, _)| note(expr));
        machine.speed_of_mhz.iter().for_each(|(_, expr, _)| note(expr));
        // What a default mentions is needed, too.
        let mut open: Vec<Slot> = used.iter().copied().collect();
        let by_slot: BTreeMap<Slot, &Parameter> = self.parameters.iter().map(|p| (p.slot, p)).collect();
        while let Some(slot) = open.pop() {
            let Some(parameter) = by_slot.get(&slot).filter(|p| !setting.parameters.contains_key(&p.name)) else {
                continue;
            };
            if let Some(default) = &parameter.default {
                default.mentions(&mut |slot| {
                    if used.insert(slot) {
                        open.push(slot);
                    }
                    false
                });
            }
        }
        for parameter in &self.parameters {
            if parameter.default.is_some()
                || setting.parameters.contains_key(&parameter.name)
                || !used.contains(&parameter.slot)
            {
                continue;
            }
            faults.push(missing(parameter, &self.parameters, setting));
        }
    }

    /// The data of the streams: all there, with the columns that are used, as the program numbers
    /// them.
    fn tables(&self, setting: &Setting, faults: &mut Vec<Diagnostic>) -> Vec<Arc<Table>> {
        let mut all = Vec::new();
        for (at, stream) in self.streams.iter().enumerate() {
            let Some(table) = setting.streams.get(at) else {
                faults.push(Diagnostic::error(
                    "stream",
                    stream.place,
                    format!("the data of stream `{}` is not there", stream.name),
                ));
                continue;
            };
            let columns: Option<Vec<usize>> =
                stream.columns.iter().map(|name| table.columns.iter().position(|c| c == name)).collect();
            let Some(columns) = columns else {
                let absent: Vec<&str> =
                    stream.columns.iter().filter(|name| !table.columns.contains(name)).map(String::as_str).collect();
                faults.push(
                    Diagnostic::error(
                        "stream",
                        stream.place,
                        format!("{} has no column {}", stream.file, absent.join(", ")),
                    )
                    .with_help(format!("it has {}", table.columns.join(", "))),
                );
                continue;
            };
            let rows = 0..table.rows();
            let values = rows.flat_map(|row| columns.iter().filter_map(move |c| table.value(row, *c))).collect();
            // A table without columns that are used still has rows to take.
            let table = if columns.is_empty() {
                Arc::clone(table)
            } else {
                Arc::new(Table { columns: stream.columns.clone(), values })
            };
            all.push(table);
        }
        all
    }

    /// The slots whose values are known, and what each process has to work out first.
    fn known(&self, setting: &Setting, faults: &mut Vec<Diagnostic>) -> (Vec<Option<Value>>, Vec<Op>) {
        let mut known = vec![None; self.slots.len()];
        if let Some(slot) = known.get_mut(NUMPROCS.0 as usize).filter(|_| setting.numprocs > 0) {
            *slot = Some(Value::Int(i64::from(setting.numprocs)));
        }
        let mut done: BTreeSet<Slot> = BTreeSet::new();
        for parameter in &self.parameters {
            if let Some(value) = setting.parameters.get(&parameter.name) {
                set(&mut known, parameter.slot, *value);
                done.insert(parameter.slot);
            }
        }
        let by_slot: BTreeMap<Slot, &Parameter> = self.parameters.iter().map(|p| (p.slot, p)).collect();
        let mut prologue = Vec::new();
        for parameter in &self.parameters {
            self.work_out(parameter, &by_slot, &mut done, &mut known, &mut prologue, faults);
        }
        (known, prologue)
    }

    /// Works out a default after all that it mentions.
    fn work_out(
        &self,
        first: &Parameter,
        by_slot: &BTreeMap<Slot, &Parameter>,
        done: &mut BTreeSet<Slot>,
        known: &mut [Option<Value>],
        prologue: &mut Vec<Op>,
        faults: &mut Vec<Diagnostic>,
    ) {
        let mut way = vec![first.slot];
        while let Some(slot) = way.last().copied() {
            let default = by_slot.get(&slot).and_then(|p| p.default.as_ref());
            let Some((parameter, default)) = by_slot.get(&slot).zip(default).filter(|_| !done.contains(&slot)) else {
                way.pop();
                continue;
            };
            let mut next = None;
            default.mentions(&mut |inner| {
                if by_slot.get(&inner).is_some_and(|p| p.default.is_some()) && !done.contains(&inner) {
                    next = Some(inner);
                }
                next.is_some()
            });
            let place = parameter.note.as_ref().map(|(place, _)| *place).or_else(|| parameter.places.first().copied());
            let place = place.unwrap_or_default();
            if let Some(inner) = next {
                if way.contains(&inner) {
                    faults.push(Diagnostic::error(
                        "circle",
                        place,
                        format!("`{}` is defined by itself", parameter.name),
                    ));
                    done.insert(slot);
                    way.pop();
                } else {
                    way.push(inner);
                }
                continue;
            }
            done.insert(slot);
            way.pop();
            let expr = default.folded(&|s| value_at(known, s));
            match expr.eval(&[]) {
                Ok(value) => set(known, slot, value),
                Err(error) if !expr.mentions(&mut |_| true) => {
                    faults.push(Diagnostic::error("no-value", place, format!("`{}`: {error}", parameter.name)));
                }
                Err(_) => prologue.push(Op { kind: OpKind::Set(slot, expr), place }),
            }
        }
    }

    fn processor_name(&self, processor: Option<ProcessorId>) -> String {
        let name = processor.and_then(|id| self.machine.processors.get(id.0 as usize)).map(|p| p.name.clone());
        name.unwrap_or_else(|| "any".to_owned())
    }

    /// The processor whose serial times count. None: those that hold for any.
    fn processor(&self, setting: &Setting, faults: &mut Vec<Diagnostic>) -> Option<ProcessorId> {
        let all = &self.machine.processors;
        let wanted = match (&setting.processor, &self.machine.processor) {
            (Some(name), _) => Some((name.as_str(), Place::default())),
            (None, Some((name, place))) => Some((name.as_str(), *place)),
            (None, None) => None,
        };
        let id = |at: usize| u32::try_from(at).ok().map(ProcessorId);
        if let Some((name, place)) = wanted {
            if let Some(at) = all.iter().position(|p| p.name == name) {
                return id(at);
            }
            let known: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
            if known.is_empty() {
                // Serial times for any processor hold for this one.
                return None;
            }
            let fault =
                Diagnostic::error("unknown-processor", place, format!("the program knows no processor `{name}`"));
            faults.push(
                fault.with_help(suggestion(name, &known).unwrap_or_else(|| format!("it knows {}", known.join(", ")))),
            );
            return None;
        }
        match all.as_slice() {
            [] => None,
            [_] => id(0),
            many => {
                let needed = self.ops.iter().find(|op| {
                    matches!(&op.kind, OpKind::Serial(serial) if !serial.times.iter().any(|(id, ..)| id.is_none()))
                });
                if let Some(op) = needed {
                    let names: Vec<&str> = many.iter().map(|p| p.name.as_str()).collect();
                    faults.push(
                        Diagnostic::error(
                            "no-processor",
                            op.place,
                            format!("serial times are given for {}", names.join(", ")),
                        )
                        .with_help(format!("choose one: --processor {}, or `Default processor = ...`", names[0])),
                    );
                }
                None
            }
        }
    }

    /// The code with all that is known put in, behind what each process has to work out first.
    fn folded(&self, known: &[Option<Value>], prologue: Vec<Op>) -> Vec<Op> {
        let shift = Pc::try_from(prologue.len()).unwrap_or(Pc::MAX);
        let mut ops = prologue;
        for op in &self.ops {
            let mut op = op.clone();
            op.each_expr(&mut |expr| *expr = expr.folded(&|slot| value_at(known, slot)));
            match &mut op.kind {
                OpKind::Jump(to) | OpKind::JumpUnless(_, to) | OpKind::LoopEnd(to) => *to += shift,
                OpKind::Choose(branches) => branches.iter_mut().for_each(|(_, to)| *to += shift),
                OpKind::LoopBegin(l) => l.exit += shift,
                _ => {}
            }
            ops.push(op);
        }
        ops
    }

    /// Each process's factor on its serial times.
    fn slowness(
        &self,
        setting: &Setting,
        processor: Option<ProcessorId>,
        known: &[Option<Value>],
        faults: &mut Vec<Diagnostic>,
    ) -> Vec<f64> {
        let basis = processor.and_then(|id| self.machine.processors.get(id.0 as usize)).and_then(|p| p.basis_mhz);
        let mut number = |expr: &Expr, place: Place| {
            let mhz = expr.folded(&|slot| value_at(known, slot)).constant().map(Value::as_f64).filter(|mhz| *mhz > 0.0);
            if mhz.is_none() {
                faults.push(Diagnostic::error("number", place, "a speed is a number of MHz above 0"));
            }
            mhz
        };
        let all = self.machine.speed_mhz.as_ref().and_then(|(expr, place)| number(expr, *place));
        let all = setting.speed_mhz.or(all);
        let single: BTreeMap<u32, f64> =
            self.machine.speed_of_mhz.iter().filter_map(|(n, expr, place)| Some((*n, number(expr, *place)?))).collect();
        if all.is_none() && single.is_empty() {
            return Vec::new();
        }
        let Some(basis) = basis else {
            let place = self.machine.speed_mhz.as_ref().map(|(_, place)| *place);
            let place =
                place.or_else(|| self.machine.speed_of_mhz.first().map(|(_, _, place)| *place)).unwrap_or_default();
            faults.push(
                Diagnostic::error("no-basis", place, "a speed is given, and no clock for which the serial times hold")
                    .with_help("write `Processor description = NAME` and `& timing basis = MHZ`"),
            );
            return Vec::new();
        };
        (0..setting.numprocs).map(|p| basis / single.get(&p).copied().or(all).unwrap_or(basis)).collect()
    }

    fn network(&self, faults: &mut Vec<Diagnostic>) -> Option<Network> {
        let all = &self.machine.networks;
        let Some((name, place)) = &self.machine.network else {
            return if all.len() == 1 { all.first().cloned() } else { None };
        };
        let found = all.iter().find(|n| n.name == *name).cloned();
        if found.is_none() {
            faults.push(Diagnostic::error("unknown-network", *place, format!("no Network describes `{name}`")));
        }
        found
    }

    /// Warnings for branches that leave out a process, and for conditions of which two hold for
    /// one.
    fn uncovered(&self, numprocs: u32, known: &[Option<Value>]) -> Vec<Diagnostic> {
        let mut warnings = Vec::new();
        let mut checks = 0;
        let mut seen = BTreeSet::new();
        for runon in self.runons.iter().filter(|runon| seen.insert(runon.place)) {
            let conditions: Vec<Expr> =
                runon.conditions.iter().map(|(c, _)| c.folded(&|slot| value_at(known, slot))).collect();
            if conditions.iter().any(|c| c.mentions(&mut |slot| slot != PROCNUM)) {
                continue;
            }
            checks += conditions.len() * numprocs as usize;
            if checks > MAX_CHECKS {
                break;
            }
            let (mut out, mut twice) = (Vec::new(), Vec::new());
            for p in 0..numprocs {
                let slots = [Value::Int(i64::from(p)), Value::Int(i64::from(numprocs))];
                let holding = conditions.iter().filter(|c| c.eval(&slots).is_ok_and(Value::truth)).count();
                if holding == 0 && !runon.has_else {
                    out.push(p);
                } else if holding > 1 {
                    twice.push(p);
                }
            }
            if !out.is_empty() {
                warnings.push(
                    Diagnostic::warning(
                        "uncovered",
                        runon.place,
                        format!("no condition holds for {}", processes(&out)),
                    )
                    .with_help("they do nothing here; add `else` if that is not meant"),
                );
            }
            if !twice.is_empty() {
                warnings.push(Diagnostic::warning(
                    "overlap",
                    runon.place,
                    format!("more than one condition holds for {}; the first counts", processes(&twice)),
                ));
            }
        }
        warnings
    }
}

/// A parameter without a value. It may be another one misspelt only where nothing explains it, and
/// the other one has a value.
fn missing(parameter: &Parameter, all: &[Parameter], setting: &Setting) -> Diagnostic {
    let name = &parameter.name;
    let place = parameter.places.first().copied().unwrap_or_default();
    let lines: BTreeSet<(u32, u32)> = parameter.places.iter().map(|p| (p.file, p.line)).collect();
    let mut fault = Diagnostic::error("missing-parameter", place, format!("`{name}` has no value"));
    if lines.len() > 1 {
        let lines: Vec<String> = lines.iter().map(|(_, line)| line.to_string()).collect();
        fault.message.push_str(&format!(" (lines {})", lines.join(", ")));
    }
    if let Some((place, why)) = &parameter.note {
        fault = fault.with_place(*place, why.clone());
    }
    let has_value = |p: &&Parameter| p.default.is_some() || setting.parameters.contains_key(&p.name);
    let others = all.iter().filter(has_value).map(|p| p.name.as_str()).filter(|other| other != name);
    let near = suggestion(name, &others.collect::<Vec<_>>()).filter(|_| parameter.note.is_none());
    let near = near.map(|s| format!("; {s}")).unwrap_or_default();
    fault.with_help(format!("it is a parameter that is not given: -p {name}=VALUE{near}"))
}

fn processes(all: &[u32]) -> String {
    let named: Vec<String> = all.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let more = if all.len() > MAX_NAMED { format!(" and {} more", all.len() - MAX_NAMED) } else { String::new() };
    format!("process{} {}{more}", if all.len() == 1 { "" } else { "es" }, named.join(", "))
}

fn value_at(known: &[Option<Value>], slot: Slot) -> Option<Value> {
    known.get(slot.0 as usize).copied().flatten()
}

fn set(known: &mut [Option<Value>], slot: Slot, value: Value) {
    if let Some(known) = known.get_mut(slot.0 as usize) {
        *known = Some(value);
    }
}

/// Leaves each serial segment the time that counts.
fn choose_times(ops: &mut [Op], processor: Option<ProcessorId>, name: &str, faults: &mut Vec<Diagnostic>) {
    let mut told = BTreeSet::new();
    for op in ops {
        let OpKind::Serial(serial) = &mut op.kind else { continue };
        let chosen = serial.times.iter().position(|(id, ..)| id.is_some() && *id == processor);
        let chosen = chosen.or_else(|| serial.times.iter().position(|(id, ..)| id.is_none()));
        match chosen {
            Some(at) => {
                serial.times.swap(0, at);
                serial.times.truncate(1);
                if let Some((_, _, place)) = serial.times.first() {
                    op.place = *place;
                }
            }
            None if processor.is_some() && told.insert(op.place) => faults.push(
                Diagnostic::error("no-time", op.place, format!("this segment has no Serial for processor {name}"))
                    .with_help(format!("add `PEVPM Serial on {name} time = ...`")),
            ),
            None => {}
        }
    }
}

/// Times that are wrong whatever happens: below 0, or between ends the wrong way round.
fn impossible(ops: &[Op], faults: &mut Vec<Diagnostic>) {
    for op in ops {
        let OpKind::Serial(serial) = &op.kind else { continue };
        let [(_, time, place)] = serial.times.as_slice() else { continue };
        let constant = |expr: &Expr| expr.constant().map(Value::as_f64);
        match &time.law {
            Law::Fixed(expr) if constant(expr).is_some_and(|v| v < 0.0) => {
                faults.push(Diagnostic::error("time", *place, "a time below 0"));
            }
            Law::Uniform(low, high) if constant(low).zip(constant(high)).is_some_and(|(low, high)| low > high) => {
                let said = "a time that cannot be drawn: the low end of uniform(low, high) is above its high one";
                faults.push(Diagnostic::error("time", *place, said));
            }
            _ => {}
        }
    }
}
