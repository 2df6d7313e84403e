//! Files that packages install for the service. The test of the command line puts copies of them into
//! `dist/`.

/// The unit of systemd.
pub const UNIT: &str = include_str!("dist/headstartd.service");
/// headstartd.conf(5).
pub const MAN_PAGE: &str = include_str!("dist/headstartd.conf.5");
/// The configuration with its defaults as remarks.
pub const CONFIG: &str = include_str!("dist/headstartd.conf");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_remarks_of_the_configuration_are_the_defaults() {
        let lines = CONFIG.lines().filter_map(|line| line.strip_prefix('#'));
        let settings: Vec<_> = lines.filter(|line| !line.starts_with([' ', '#'])).collect();
        let without: Vec<_> =
            settings.iter().filter(|line| !line.starts_with("ignore")).copied().collect();
        assert_eq!(Config::parse(&without.join("\n")).unwrap(), Config::default());
        assert!(Config::parse(&settings.join("\n")).is_ok() && without.len() + 1 == settings.len());
        assert_eq!(Config::parse(CONFIG).unwrap(), Config::default());
        for setting in settings {
            let line = format!(".B {}", setting.replace('-', "\\-"));
            assert!(MAN_PAGE.lines().any(|found| found == line), "{line}");
        }
    }
}
