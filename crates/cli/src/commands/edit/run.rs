//! Running what a script says, on a file system that is open for all of it.

use super::report::Report;
use super::script::{Origin, Part};
use super::step::Step;
use crate::args::{Session, Whereabouts};
use crate::commands::tune;
use crate::failure::{Failure, Outcome, in_image};
use extant::{SharedDevice, Transaction};
use extant_fsck::repair::tune::Settings;
use extant_image::ImageLocation;

/// Where lines find the file system of a transaction.
pub(super) fn place_of(
    transaction: &Transaction,
    image: &ImageLocation,
    location: &Whereabouts,
) -> Whereabouts {
    let session = Session {
        image: image.clone(),
        fs: transaction.filesystem().clone(),
    };
    Whereabouts {
        session: Some(session),
        ..location.clone()
    }
}

/// A script being run.
pub(super) struct Run<'a> {
    pub(super) origin: &'a Origin,
    pub(super) place: Whereabouts,
    pub(super) transaction: &'a mut Transaction,
    /// Whether what would change the host is left.
    pub(super) dry: bool,
    pub(super) report: &'a mut Report,
    /// Lines that were done.
    pub(super) done: u64,
}

impl Run<'_> {
    /// Runs parts in their order, up to the first line that fails.
    pub(super) fn parts(&mut self, parts: &[Part]) -> Outcome {
        for part in parts {
            match part {
                Part::Line(line, step) => self.line(*line, step)?,
                Part::If {
                    line,
                    condition,
                    then,
                    otherwise,
                } => {
                    let holds = condition.holds(&self.place);
                    let holds = holds.map_err(|failure| self.told(*line, failure))?;
                    self.parts(if holds { then } else { otherwise })?;
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: usize, step: &Step) -> Outcome {
        let outcome = match step.uuid() {
            Some(uuid) => self.give_uuid(uuid),
            None => step.run(&self.place, self.dry),
        };
        self.report.line(line, step, &outcome)?;
        if let Err(failure) = outcome {
            return Err(self.told(line, failure));
        }
        self.done += 1;
        Ok(())
    }

    /// Gives the file system another UUID, as `tune` does.
    fn give_uuid(&mut self, uuid: [u8; 16]) -> Outcome {
        let settings = Settings {
            uuid: Some(uuid),
            ..Settings::default()
        };
        let Some(session) = self.place.session.take() else {
            return Err(Failure::new("the file system is not open"));
        };
        let image = session.image;
        drop(session.fs);
        let given = self.transaction.change_closed(|device| {
            let device = SharedDevice::clone(device);
            let way = tune::Way {
                in_front: true,
                ..tune::Way::default()
            };
            tune::apply(device, &settings, &way).map_err(NotGiven::Refused)
        });
        self.place = place_of(self.transaction, &image, &self.place);
        given.map_err(|e| match e {
            NotGiven::Refused(why) => Failure::new(why),
            NotGiven::Whole(e) => Failure::new(in_image(&image, &e)),
        })
    }

    /// Says which line failed. What its command says by itself has been said.
    fn told(&self, line: usize, failure: Failure) -> Failure {
        let before = self.origin.before(line);
        match failure {
            Failure::Usage(text) | Failure::Failed(text) => Failure::new(format!("{before}{text}")),
            // Success is for what is committed alone, whatever a line calls its own.
            Failure::Said | Failure::Code(_) | Failure::PipeClosed => {
                Failure::new(format!("{before}this line failed"))
            }
        }
    }
}

/// Why a file system has its old UUID.
enum NotGiven {
    Refused(String),
    Whole(extant::Error),
}

impl From<extant::Error> for NotGiven {
    fn from(e: extant::Error) -> Self {
        Self::Whole(e)
    }
}
