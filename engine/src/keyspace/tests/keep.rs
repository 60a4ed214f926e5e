//! An image store in memory.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::image::{Manifest, StoreReply, StoreRequest, TrySendError};
use crate::shard::StoreLink;

/// A store that keeps everything and answers at once.
#[derive(Default)]
pub(crate) struct Keep {
    pub(crate) blocks: RefCell<Vec<Vec<u8>>>,
    pub(crate) manifest: RefCell<Option<Manifest>>,
    replies: RefCell<VecDeque<StoreReply>>,
}

impl StoreLink for &Keep {
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        let mut replies = self.replies.borrow_mut();
        match request {
            StoreRequest::Begin { .. } => {}
            StoreRequest::Block(_, block) => self.blocks.borrow_mut().push(block.into_vec()),
            StoreRequest::Seal(image) => {
                let blocks = self.blocks.borrow();
                replies.push_back(StoreReply::Sealed {
                    image,
                    blocks: blocks.len() as u64,
                    bytes: blocks.iter().map(|block| block.len() as u64).sum(),
                });
            }
            StoreRequest::Switch(manifest) => {
                replies.push_back(StoreReply::Switched(manifest.image));
                *self.manifest.borrow_mut() = Some(*manifest);
            }
            other => unreachable!("{other:?}"),
        }
        Ok(())
    }

    fn try_recv(&self) -> Option<StoreReply> {
        self.replies.borrow_mut().pop_front()
    }

    fn steps(&self) -> u64 {
        0
    }

    fn has_reply(&self) -> bool {
        !self.replies.borrow().is_empty()
    }
}
