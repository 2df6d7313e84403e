//! Real devices against their models: latency at depth 1, throughput at depth
//! 32, bandwidth and moves of the arm.
//!
//! A machine on which others work cannot hold a model, nor can one whose CPUs
//! a load takes wholly. So a figure that is off counts only when nobody else
//! used the CPUs meanwhile and they had time left; otherwise the model is
//! skipped with its figures shown, also under CI.

use crate::common::{Place, possible};
use slowdisk::lifecycle;
use slowdisk::load::BUSY;
use slowdisk::measure::{Figure, loads};
use slowdisk::model::Model;

struct Attempt {
    figures: Vec<Figure>,
    others: f64,
}

fn attempt(place: &Place, model: &str) -> Attempt {
    let device = Model::find(model).ok().and_then(|model| model.device).expect("a model");
    let (path, watched) = place.up_watched(model);
    let capacity = lifecycle::capacity(&path).expect("a size");
    let measure = |load: &slowdisk::measure::Load| load.measure(&path, &device, capacity);
    let figures: Result<_, _> = loads(&device, capacity).iter().map(measure).collect();
    let attempt = Attempt { figures: figures.expect("reads"), others: watched.others() };
    place.must(&["down"], &[&path]);
    attempt
}

impl Attempt {
    fn describe(&self, model: &str) -> String {
        let mut text = format!("{model}, {:.2} CPUs used by others:\n", self.others);
        for figure in &self.figures {
            text += &format!(
                "  {:<30} {:>10.1} modelled {:>10.1} measured {:>+6.1} %, {:>4.1} % idle\n",
                figure.name,
                figure.modelled,
                figure.measured,
                figure.error() * 100.0,
                figure.idle * 100.0
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
    let mut failures = String::new();
    for model in ["sata-ssd", "emmc", "sd-card", "cloud", "cloud-lazy", "hdd"] {
        // One hiccup of a quiet machine is forgiven.
        for is_last in [false, true] {
            let attempt = attempt(&place, model);
            let text = attempt.describe(model);
            eprint!("{text}");
            if attempt.figures.iter().all(Figure::holds) {
                break;
            }
            let is_off = |figure: &&Figure| !figure.holds();
            if attempt.figures.iter().filter(is_off).all(Figure::is_cpu_bound) {
                eprintln!("skipped: {test} for {model}: the CPUs are too slow to hold it");
                break;
            }
            if attempt.others > BUSY {
                eprintln!("skipped: {test} for {model}: the machine is too busy to hold it");
                break;
            }
            if is_last {
                failures += &text;
            }
        }
    }
    assert!(failures.is_empty(), "On an idle machine, twice:\n{failures}");
}
