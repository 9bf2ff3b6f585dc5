//! The side that replies: does what it is asked to, until all is measured.

use std::thread;

use uct_tools_common::Failure;

use super::line::{Command, Line, Message, unexpected};
use super::side::{SPINS, Side, takes};

/// Turns without an event until commands are received: a line is slower to look at than the memory of a message.
const IDLE_TURNS: u32 = 64;
/// Turns until they are received even if there are events all the time.
const BUSY_TURNS: u32 = 4096;

impl Side {
    /// Replies until the other side has ended the measurement.
    pub(super) fn reply(&self, line: &Line) -> Result<(), Failure> {
        let mut command = command(line.receive()?)?;
        loop {
            match command {
                Command::End => return line.send(Message::Done),
                Command::Reply(operation, size) if !takes(&self.ep.iface(), operation, size) => {
                    return Err(format!("{} of {size} bytes is not possible here", operation.name()).into());
                }
                // What is waited for may have arrived.
                Command::Await(_) => {}
                _ => {
                    self.begin();
                    line.send(Message::Done)?;
                }
            }
            command = self.serve(line, command)?;
            if command != Command::End {
                self.settle()?;
            }
        }
    }

    /// Does what a command asks for, until the next one comes.
    fn serve(&self, line: &Line, current: Command) -> Result<Command, Failure> {
        let (mut number, mut idle, mut turns) = (1, 0, 0_u32);
        loop {
            turns = turns.wrapping_add(1);
            match current {
                Command::Reply(operation, size) if self.has_arrived(operation, size, number) => {
                    self.post(operation, size, number)?;
                    number += 1;
                    idle = 0;
                }
                Command::Await(count) if self.received.get() >= count => {
                    line.send(Message::Done)?;
                    return command(line.receive()?);
                }
                _ => {
                    idle = if self.worker.progress() > 0 { 0 } else { idle + 1 };
                    std::hint::spin_loop();
                }
            }
            let is_busy_turn = turns.is_multiple_of(BUSY_TURNS);
            if (idle % IDLE_TURNS == IDLE_TURNS - 1 || is_busy_turn)
                && let Some(next) = line.poll()?
            {
                return command(next);
            }
            if idle == SPINS || is_busy_turn {
                self.check()?;
            }
            if idle == SPINS {
                idle = 0;
                thread::yield_now();
            }
        }
    }
}

fn command(message: Message) -> Result<Command, Failure> {
    match message {
        Message::Command(command) => Ok(command),
        message => Err(unexpected(&message)),
    }
}
