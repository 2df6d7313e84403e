//! A boot as one self-contained page: the picture, and the figures in tables.

use super::svg::Escaped;
use super::svg_boot;
use super::units::{grouped, millis};
use crate::text_boot::title;
use headstart::boot::analysis::Analysis;
use std::fmt::Write;

/// Gaps that are listed, the longest first.
const GAPS: usize = 20;

const STYLE: &str = r#"
:root{color-scheme:light dark}
body{margin:0 auto;padding:16px;max-width:1440px;font:14px/1.4 system-ui,"Segoe UI","DejaVu Sans",sans-serif;background:#fff;color:#1d1d20}
svg{max-width:100%;height:auto}
h2{font-size:15px;margin:28px 0 6px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:2px 12px 2px 0;text-align:right;border-bottom:1px solid #e4e4e9}
th{font-weight:normal;color:#66666e}
th:first-child,td:first-child{text-align:left}
@media (prefers-color-scheme:dark){body{background:#17171b;color:#ececf0}th,td{border-color:#303038}th{color:#a0a0aa}}
"#;

/// The page, as an HTML file's text.
pub fn html(boot: &Analysis) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{}",
        Escaped(&title(boot)),
        svg_boot::svg(boot)
    );
    phases(&mut out, boot);
    gaps(&mut out, boot);
    units(&mut out, boot);
    if !boot.boot.problems.is_empty() {
        put(&mut out, "<h2>What could not be done</h2>\n<ul>\n");
        for problem in &boot.boot.problems {
            put(&mut out, &format!("<li>{}</li>\n", Escaped(problem)));
        }
        put(&mut out, "</ul>\n");
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn phases(out: &mut String, boot: &Analysis) {
    let rows = boot.boot.phases.iter().map(|phase| {
        let pages = |n: u64| grouped(n as f64, 0);
        let outcome = &phase.outcome;
        vec![
            phase.name.clone(),
            seconds(phase.begin_ms),
            seconds(phase.end_ms),
            mib(phase.prefetched_bytes),
            pages(outcome.touched_pages),
            pages(outcome.ready_pages),
            pages(outcome.late_pages),
            pages(outcome.missing_pages),
            pages(outcome.wasted_pages),
        ]
    });
    let head = [
        "phase",
        "begins, s",
        "ends, s",
        "prefetched, MiB",
        "pages touched",
        "ready",
        "late",
        "missing",
        "wasted",
    ];
    table(out, "Phases", &head, rows);
}

fn gaps(out: &mut String, boot: &Analysis) {
    let mut gaps = boot.idle.clone();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.to_us - gap.from_us));
    let skipped = gaps.len().saturating_sub(GAPS);
    let title = match skipped {
        0 => "Times in which nothing came into memory".to_owned(),
        n => format!("Times in which nothing came into memory, without {n} shorter ones"),
    };
    let row = |gap: &headstart::boot::bins::Gap| {
        let [from, to] = [gap.from_us, gap.to_us].map(|us| format!("{:.3}", us as f64 / 1e6));
        vec![from, to, millis((gap.to_us - gap.from_us) as f64 / 1e3)]
    };
    table(out, &title, &["from, s", "to, s", "ms"], gaps.iter().take(GAPS).map(row));
}

fn units(out: &mut String, boot: &Analysis) {
    let slowest = boot.slowest();
    let rows = slowest.iter().map(|(unit, took)| {
        let at = |us: Option<u64>| seconds(us.map(|us| us as f64 / 1e3));
        vec![
            unit.name.clone(),
            millis(*took as f64 / 1e3),
            at(unit.activating_us),
            at(unit.active_us),
            at(unit.inactive_us),
        ]
    });
    let head = ["unit", "took, ms", "started, s", "active, s", "ended, s"];
    table(out, "Units, the slowest first", &head, rows);
}

fn table(out: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut body = String::new();
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", Escaped(cell))).collect();
        put(&mut body, &format!("<tr>{cells}</tr>\n"));
    }
    if body.is_empty() {
        return;
    }
    let head: String = head.iter().map(|cell| format!("<th>{}</th>", Escaped(cell))).collect();
    let title = Escaped(title);
    put(out, &format!("<h2>{title}</h2>\n<table>\n<tr>{head}</tr>\n{body}</table>\n"));
}

fn seconds(ms: Option<f64>) -> String {
    ms.map_or("–".into(), |ms| format!("{:.3}", ms / 1e3))
}

fn mib(bytes: u64) -> String {
    millis(bytes as f64 / f64::from(1 << 20))
}

fn put(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = out.write_str(text);
}
