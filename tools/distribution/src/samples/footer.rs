//! The schema in a Parquet footer, read with bounds: a flat list of columns, or nothing.
//!
//! The `parquet` crate builds a tree from the schema by recursion and reserves what the file's
//! numbers say; this reads the list (Thrift's compact protocol, parquet-format's
//! `FileMetaData.schema`) and hands the crate a schema made here.

use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type};

/// More columns than anybody adds to seven.
const MAX_COLUMNS: u64 = 256;

/// A column of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) physical: Physical,
    pub(super) optional: bool,
}

/// Reads Thrift's compact protocol from a slice.
struct Thrift<'a> {
    rest: &'a [u8],
}

/// Types of the compact protocol, as numbered there.
const I32: u8 = 5;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl<'a> Thrift<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&b, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(b)
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(head)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            value |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let v = self.varint()?;
        Some((v >> 1).cast_signed() ^ -((v & 1).cast_signed()))
    }

    /// Id and type of the next field; `None` within: the end of the struct.
    fn field(&mut self, last: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        let delta = i64::from(head >> 4);
        let id = if delta == 0 { self.zigzag()? } else { last + delta };
        Some(Some((id, head & 15)))
    }

    /// Type of the elements and their number.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let short = u64::from(head >> 4);
        Some((head & 15, if short == 15 { self.varint()? } else { short }))
    }

    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        let deeper = depth.checked_sub(1)?;
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => drop(self.take(8)?),
            BINARY => {
                let len = self.varint()?;
                self.take(len)?;
            }
            STRUCT => {
                let mut last = 0;
                while let Some((id, kind)) = self.field(last)? {
                    self.skip(kind, deeper)?;
                    last = id;
                }
            }
            // Lists, sets and maps do not occur within a schema.
            _ => return None,
        }
        Some(())
    }
}

/// One element of the schema: as a leaf, or as a group of so many children.
enum Element {
    Leaf(Leaf),
    Group(u64),
}

/// The columns of a footer, or why it has none that can be read.
pub(super) fn columns(footer: &[u8]) -> Result<Vec<Leaf>, &'static str> {
    let mut thrift = Thrift { rest: footer };
    let broken = "damaged: its footer cannot be read";
    let first = thrift.field(0).ok_or(broken)?;
    if first != Some((1, I32)) || thrift.varint().is_none() {
        return Err(broken);
    }
    if thrift.field(1) != Some(Some((2, LIST))) {
        return Err(broken);
    }
    let (kind, elements) = thrift.list().ok_or(broken)?;
    if kind != STRUCT || elements == 0 {
        return Err(broken);
    }
    if elements > MAX_COLUMNS {
        return Err("not a samples file: it has too many columns");
    }
    match element(&mut thrift).ok_or(broken)? {
        Element::Group(children) if children == elements - 1 => {}
        _ => return Err("not a samples file: its columns are nested"),
    }
    let mut leaves = Vec::new();
    for _ in 1..elements {
        match element(&mut thrift).ok_or(broken)? {
            Element::Leaf(leaf) => leaves.push(leaf),
            Element::Group(_) => return Err("not a samples file: its columns are nested"),
        }
    }
    Ok(leaves)
}

fn element(thrift: &mut Thrift<'_>) -> Option<Element> {
    let (mut physical, mut repetition, mut name, mut children) = (None, None, None, 0);
    let mut last = 0;
    while let Some((id, kind)) = thrift.field(last)? {
        match (id, kind) {
            (1, I32) => physical = Some(thrift.zigzag()?),
            (3, I32) => repetition = Some(thrift.zigzag()?),
            (4, BINARY) => {
                let len = thrift.varint()?;
                name = Some(String::from_utf8_lossy(thrift.take(len)?).into_owned());
            }
            (5, I32) => children = u64::try_from(thrift.zigzag()?).ok()?,
            _ => thrift.skip(kind, 8)?,
        }
        last = id;
    }
    let Some(physical) = physical else { return Some(Element::Group(children)) };
    if children > 0 {
        return None;
    }
    let physical = match physical {
        0 => Physical::BOOLEAN,
        1 => Physical::INT32,
        2 => Physical::INT64,
        3 => Physical::INT96,
        4 => Physical::FLOAT,
        5 => Physical::DOUBLE,
        6 => Physical::BYTE_ARRAY,
        7 => Physical::FIXED_LEN_BYTE_ARRAY,
        _ => return None,
    };
    // A repeated column is nested data.
    let optional = match repetition? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(Element::Leaf(Leaf { name: name?, physical, optional }))
}

/// The schema for the crate, of these columns and nothing else the file says.
pub(super) fn schema(leaves: &[Leaf]) -> parquet::errors::Result<Arc<SchemaDescriptor>> {
    let mut fields = Vec::new();
    for leaf in leaves {
        let repetition = if leaf.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        // The length matters for one type, whose columns are never read.
        let field = Type::primitive_type_builder(&leaf.name, leaf.physical).with_repetition(repetition).with_length(1);
        fields.push(Arc::new(field.build()?));
    }
    let root = Type::group_type_builder("samples").with_fields(fields).build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}
