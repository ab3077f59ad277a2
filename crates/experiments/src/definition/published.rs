//! Figures of a publication, as they stand in an experiment's file.

use serde::Deserialize;

use crate::report::PublishedRow;

use super::Placement;

/// Names of columns that a table may have.
const COLUMNS: [&str; 12] = [
    "scenario",
    "workload",
    "depth",
    "copies",
    "client",
    "placement",
    "system",
    "iops",
    "iops_per_core",
    "bandwidth_mib_s",
    "latency_us_mean",
    "latency_us_mean_write",
];

/// Rows of a publication: column names, and a list of values for each row. An empty text stands for what was not
/// published.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    /// Names of the columns: `scenario`, `workload` (`4k random write`) and `system` are texts; `depth`, `copies` and `client` are whole
    /// numbers; `placement` is as in sweeps; `iops`, `iops_per_core`, `bandwidth_mib_s` (MiB/s), `latency_us_mean` and
    /// `latency_us_mean_write` (microseconds) are numbers, as in [`PublishedRow`]. Default: none.
    #[serde(default)]
    columns: Vec<String>,
    /// Values by row, as many as there are columns. Default: none.
    #[serde(default)]
    rows: Vec<Vec<Value>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a number or a text")]
enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Value {
    fn number(&self) -> Result<Option<f64>, ()> {
        match self {
            Value::Integer(value) => Ok(Some(*value as f64)),
            // TOML has words for what is no number, and JSON has none.
            Value::Number(value) if value.is_finite() => Ok(Some(*value)),
            Value::Text(text) if text.is_empty() => Ok(None),
            Value::Number(_) | Value::Text(_) => Err(()),
        }
    }

    fn count(&self) -> Result<Option<u32>, ()> {
        match self {
            Value::Integer(value) => u32::try_from(*value).map(Some).map_err(drop),
            Value::Text(text) if text.is_empty() => Ok(None),
            _ => Err(()),
        }
    }

    fn text(&self) -> Result<String, ()> {
        match self {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(()),
        }
    }
}

impl PublishedTable {
    /// The rows, or what is wrong with them.
    pub fn rows(&self) -> Result<Vec<PublishedRow>, String> {
        for (place, column) in self.columns.iter().enumerate() {
            if !COLUMNS.contains(&column.as_str()) {
                return Err(format!(
                    "published column {column:?} is not known; there are {}",
                    COLUMNS.join(", ")
                ));
            }
            if self.columns[..place].contains(column) {
                return Err(format!("published column {column:?} is named twice"));
            }
        }
        self.rows.iter().enumerate().map(|(index, values)| self.row(index + 1, values)).collect()
    }

    fn row(&self, number: usize, values: &[Value]) -> Result<PublishedRow, String> {
        if values.len() != self.columns.len() {
            return Err(format!(
                "published row {number} has {} values; there are {} columns",
                values.len(),
                self.columns.len()
            ));
        }
        let mut row = PublishedRow {
            scenario: String::new(),
            workload: String::new(),
            depth: None,
            copies: None,
            client: None,
            placement: None,
            system: String::new(),
            iops: None,
            iops_per_core: None,
            bandwidth_mib_s: None,
            latency_us_mean: None,
            latency_us_mean_write: None,
        };
        for (column, value) in self.columns.iter().zip(values) {
            set(&mut row, column, value)
                .map_err(|()| format!("published row {number}: {value:?} does not fit column {column:?}"))?;
        }
        Ok(row)
    }
}

fn set(row: &mut PublishedRow, column: &str, value: &Value) -> Result<(), ()> {
    match column {
        "scenario" => row.scenario = value.text()?,
        "workload" => row.workload = value.text()?,
        "system" => row.system = value.text()?,
        "depth" => row.depth = value.count()?,
        "copies" => row.copies = value.count()?,
        "client" => row.client = value.count()?,
        "placement" => row.placement = placement(&value.text()?)?,
        "iops" => row.iops = value.number()?,
        "iops_per_core" => row.iops_per_core = value.number()?,
        "bandwidth_mib_s" => row.bandwidth_mib_s = value.number()?,
        "latency_us_mean" => row.latency_us_mean = value.number()?,
        "latency_us_mean_write" => row.latency_us_mean_write = value.number()?,
        _ => return Err(()),
    }
    Ok(())
}

fn placement(text: &str) -> Result<Option<String>, ()> {
    match text {
        "" => Ok(None),
        "whole-cores" => Ok(Some(Placement::WholeCores.as_str().to_owned())),
        "siblings" => Ok(Some(Placement::Siblings.as_str().to_owned())),
        _ => Err(()),
    }
}
