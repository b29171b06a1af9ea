//! A script that runs beside, with a limit.

use super::fixture::Mount;
use super::options::Amount;
use super::{Setting, tools};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running script, in a process group of its own, which is killed with this.
pub(super) struct Job {
    shell: Child,
}

impl Job {
    /// Starts a script; what it prints goes to `output` in the log. It is told by its environment
    /// what to do and where.
    pub(super) fn start(
        setting: &Setting,
        script: &str,
        mount: &Mount,
        (log, amount, seed): (&Path, &Amount, u64),
    ) -> Result<Job, String> {
        let path = log.join("output");
        let output = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let errors = output.try_clone().map_err(|e| e.to_string())?;
        mount.place().give(log)?;
        let mut shell = mount.place().command("sh");
        shell
            .args(["-euc", script])
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .env("BIN", tools::crates_at(setting))
            .env("ROOT", &setting.root)
            .env("DIR", mount.point())
            .env_remove("CARGO_TARGET_DIR")
            .env("LOG", log);
        let numbers = [
            ("SEED", seed & 0x7fff_ffff),
            ("FSX_OPS", amount.fsx),
            ("FIO_MIB", amount.fio_mib),
            ("FILES", amount.files),
            ("DBENCH_SECS", amount.dbench),
            ("STRESS_SECS", amount.stress),
            ("ROWS", amount.rows),
        ];
        shell.envs(numbers.map(|(name, number)| (name, number.to_string())));
        let shell = shell.spawn().map_err(|e| format!("cannot start sh: {e}"))?;
        Ok(Job { shell })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.shell.try_wait().map_err(|e| e.to_string())
    }

    /// Waits for its end; `None` if that takes too long.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, String> {
        let begun = Instant::now();
        loop {
            let ended = self.ended()?;
            if ended.is_some() || begun.elapsed() > limit {
                return Ok(ended);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // What the script started and left is in its group.
        let group = format!("-{}", self.shell.id());
        let mut kill = Command::new("kill");
        let kill = kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
        let _ = kill.status();
        let _ = self.shell.wait();
    }
}
