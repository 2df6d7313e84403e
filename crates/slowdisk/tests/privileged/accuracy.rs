//! Real devices against their models: latency at depth 1, throughput at depth
//! 32, bandwidth and moves of the arm.
//!
//! A machine on which others work cannot hold a model. So a figure that is off
//! counts only when nobody else used the processors meanwhile; otherwise the
//! comparison is made again, and in the end skipped with its figures shown,
//! also under CI.

use std::time::{Duration, Instant};

use crate::common::{Place, possible};
use slowdisk::lifecycle;
use slowdisk::load::{BUSY, Watch};
use slowdisk::measure::{Figure, loads};
use slowdisk::model::Model;

/// A figure that is off while others work is measured again within this time.
const PATIENCE: Duration = Duration::from_secs(15);

struct Attempt {
    figures: Vec<Figure>,
    others: f64,
}

fn attempt(place: &Place, model: &str) -> Attempt {
    let device = Model::find(model).ok().and_then(|model| model.device).expect("a model");
    let path = place.up(model, false);
    let watch = Watch::begin(vec![place.server(), std::process::id()]).expect("statistics");
    let capacity = lifecycle::capacity(&path).expect("a size");
    let measure = |load: &slowdisk::measure::Load| load.measure(&path, &device, capacity);
    let figures: Result<_, _> = loads(&device, capacity).iter().map(measure).collect();
    let attempt =
        Attempt { figures: figures.expect("reads"), others: watch.others().expect("them") };
    place.must(&["down"], &[&path]);
    attempt
}

impl Attempt {
    fn describe(&self, model: &str) -> String {
        let mut text = format!("{model}, {:.2} processors used by others:\n", self.others);
        for figure in &self.figures {
            text += &format!(
                "  {:<30} {:>10.1} modelled {:>10.1} measured {:>+6.1} %\n",
                figure.name,
                figure.modelled,
                figure.measured,
                figure.error() * 100.0
            );
        }
        text
    }
}

#[test]
fn disks_are_as_slow_as_their_models() {
    let test = "disks_are_as_slow_as_their_models";
    if !possible(test, &["losetup"]) {
        return;
    }
    let place = Place::new();
    place.blank(1024);
    let start = Instant::now();
    let mut failures = String::new();
    for model in ["sata-ssd", "emmc", "sd-card", "cloud", "cloud-lazy", "hdd"] {
        let mut was_quiet = false;
        loop {
            let attempt = attempt(&place, model);
            let text = attempt.describe(model);
            eprint!("{text}");
            if attempt.figures.iter().all(Figure::holds) {
                break;
            }
            // One hiccup of a quiet machine is forgiven.
            let quiet = attempt.others <= BUSY;
            if quiet && was_quiet {
                failures += &text;
                break;
            }
            was_quiet |= quiet;
            if !quiet && start.elapsed() > PATIENCE {
                eprintln!("skipped: {test} for {model}: the machine is too busy to hold it");
                break;
            }
        }
    }
    assert!(failures.is_empty(), "On an idle machine, twice:\n{failures}");
}
