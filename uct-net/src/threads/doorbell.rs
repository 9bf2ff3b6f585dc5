//! The doorbell of the engine: wakes a thread by a descriptor, or the task of a runtime by its waker.

use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "tokio")]
use std::{sync::Mutex, task::Waker};

use ucs::event_set::EventFd;
use ucs::sys::SystemError;

#[cfg(feature = "tokio")]
use super::lock::lock;

pub(super) struct Doorbell {
    event: EventFd,
    /// The driver's task, while it sleeps.
    #[cfg(feature = "tokio")]
    task: Mutex<Option<Waker>>,
}

impl Doorbell {
    pub(super) fn new() -> Result<Doorbell, SystemError> {
        Ok(Doorbell {
            event: EventFd::new()?,
            #[cfg(feature = "tokio")]
            task: Mutex::default(),
        })
    }

    /// Wakes the driver's task if it sleeps, or else a thread.
    pub(super) fn ring(&self) {
        #[cfg(feature = "tokio")]
        {
            let task = lock(&self.task).take();
            if let Some(task) = task {
                return task.wake();
            }
        }
        self.event.signal();
    }

    /// A thread is awake.
    pub(super) fn drain(&self) {
        self.event.drain();
    }

    /// The driver's task is about to sleep (`Some`), or awake.
    #[cfg(feature = "tokio")]
    pub(super) fn set_task(&self, task: Option<Waker>) {
        *lock(&self.task) = task;
    }
}

/// The descriptor is readable once the doorbell was rung.
impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
