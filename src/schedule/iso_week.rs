//! The rhythm of runs by ISO 8601 week.

use jiff::civil::Date;

/// Which weeks a schedule runs in. Matched literally on the week of the local date: `@odd` matches week 53 and, a
/// week later, week 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsoWeek {
    /// Every week.
    Every,
    /// Weeks with an odd number.
    Odd,
    /// Weeks with an even number.
    Even,
    /// The week of this number, 1 to 53.
    Number(i8),
}

/// A text that names no week.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("isoWeek {0:?} is not @odd, @even or a week from 1 to 53")]
pub struct BadIsoWeek(pub String);

impl IsoWeek {
    /// Reads `schedule.isoWeek`; empty = every week.
    pub fn parse(text: &str) -> Result<Self, BadIsoWeek> {
        match text {
            "" => Ok(Self::Every),
            "@odd" => Ok(Self::Odd),
            "@even" => Ok(Self::Even),
            number => match number.parse() {
                Ok(week @ 1..=53) => Ok(Self::Number(week)),
                Ok(_) | Err(_) => Err(BadIsoWeek(text.to_owned())),
            },
        }
    }

    /// Whether the date lies in such a week.
    pub fn matches(self, date: Date) -> bool {
        let week = date.iso_week_date().week();
        match self {
            Self::Every => true,
            Self::Odd => week % 2 == 1,
            Self::Even => week % 2 == 0,
            Self::Number(wanted) => week == wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::sunday_of_53("@odd", date(2027, 1, 3), true)]
    #[case::monday_of_1_runs_again("@odd", date(2027, 1, 4), true)]
    #[case("@even", date(2027, 1, 4), false)]
    #[case("@even", date(2027, 1, 11), true)]
    #[case::year_of_the_week_not_of_the_date("1", date(2025, 12, 29), true)]
    #[case("53", date(2026, 12, 31), true)]
    #[case("53", date(2025, 12, 31), false)]
    #[case("", date(2026, 6, 1), true)]
    #[case("07", date(2026, 2, 10), true)]
    fn weeks_match_literally(#[case] text: &str, #[case] day: Date, #[case] expected: bool) {
        assert_eq!(IsoWeek::parse(text).unwrap().matches(day), expected);
    }

    #[rstest]
    fn other_texts_are_refused(
        #[values("0", "54", "-1", "odd", "@Odd", "@odd ", "1-5", "*/2", "1,3", "300")] text: &str,
    ) {
        assert_eq!(IsoWeek::parse(text), Err(BadIsoWeek(text.to_owned())));
    }
}
