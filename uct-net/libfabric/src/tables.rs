//! The tables that C finds in the head of each object.
//!
//! Built on `objects` and `ops`, whose functions it puts into the slots. A slot that is not named returns ENOSYS.

use crate::abi::*;
use crate::objects::address_vector::{self, AddressVector};
use crate::objects::completion_queue::{self, CompletionQueue};
use crate::objects::counter::{self, Counter};
use crate::objects::domain::{self, Domain};
use crate::objects::endpoint::{self, Endpoint};
use crate::objects::event_queue::{self, EventQueue};
use crate::objects::fabric::Fabric;
use crate::objects::region::{self, Region};
use crate::objects::{Held, close, name, trywait};
use crate::ops::{atomic, message, rma, tagged};

/// Gives a class its number, its head and its functions of the table that all classes have.
macro_rules! classes {
    ($($held:ident: $class:ident { $($slot:ident: $function:expr),* }
        $head:ident { $($field:ident: $value:expr),* } of $object:ident;)*) => {
        $(impl Held for $held {
            type Head = $head;
            const CLASS: usize = $class;
            const OPS: &'static fi_ops =
                &fi_ops { close: close::<$held>, $($slot: $function,)* ..fi_ops::UNSUPPORTED };

            fn head(&self, fid: fid) -> $head {
                let $object = self;
                $head { fid, $($field: $value),* }
            }
        })*
    };
}

classes! {
    Fabric: FI_CLASS_FABRIC {} fid_fabric { ops: &FABRIC, api_version: 0 } of _fabric;
    EventQueue: FI_CLASS_EQ {} fid_eq { ops: &EVENT_QUEUE } of _queue;
    Domain: FI_CLASS_DOMAIN { bind: domain::bind } fid_domain { ops: &DOMAIN, mr: &REGISTRATION } of _domain;
    AddressVector: FI_CLASS_AV { bind: address_vector::bind } fid_av { ops: &ADDRESS_VECTOR } of _vector;
    CompletionQueue: FI_CLASS_CQ { control: completion_queue::control } fid_cq { ops: &COMPLETION_QUEUE } of _queue;
    Counter: FI_CLASS_CNTR { control: counter::control } fid_cntr { ops: &COUNTER } of _counter;
    Region: FI_CLASS_MR {} fid_mr { mem_desc: std::ptr::null_mut(), key: region.key } of region;
    Endpoint: FI_CLASS_EP { bind: endpoint::bind, control: endpoint::control }
        fid_ep {
            ops: &ENDPOINT,
            cm: &CONNECTION,
            msg: &MESSAGE,
            rma: &RMA,
            tagged: &TAGGED,
            atomic: &ATOMIC,
            collective: &fi_ops_collective::UNSUPPORTED
        } of _endpoint;
}

macro_rules! tables {
    ($($name:ident: $table:ident { $($slot:ident: $function:expr),* $(,)? })*) => {
        $(static $name: $table = $table { $($slot: $function,)* ..$table::UNSUPPORTED };)*
    };
}

tables! {
    FABRIC: fi_ops_fabric {
        domain: domain::open,
        domain2: domain::open_with_flags,
        eq_open: event_queue::open,
        trywait: trywait::trywait,
    }
    EVENT_QUEUE: fi_ops_eq {
        read: event_queue::read,
        readerr: event_queue::readerr,
        sread: event_queue::sread,
        strerror: event_queue::strerror,
    }
    DOMAIN: fi_ops_domain {
        av_open: address_vector::open,
        cq_open: completion_queue::open,
        cntr_open: counter::open,
        endpoint: endpoint::open,
        endpoint2: endpoint::open_with_flags,
        query_atomic: domain::query_atomic,
    }
    REGISTRATION: fi_ops_mr { reg: region::reg, regv: region::regv, regattr: region::regattr }
    ADDRESS_VECTOR: fi_ops_av {
        insert: address_vector::insert,
        insertsvc: address_vector::insertsvc,
        remove: address_vector::remove,
        lookup: address_vector::lookup,
        straddr: address_vector::straddr,
    }
    COMPLETION_QUEUE: fi_ops_cq {
        read: completion_queue::read,
        readfrom: completion_queue::readfrom,
        readerr: completion_queue::readerr,
        sread: completion_queue::sread,
        sreadfrom: completion_queue::sreadfrom,
        signal: completion_queue::signal,
        strerror: completion_queue::strerror,
    }
    COUNTER: fi_ops_cntr {
        read: counter::read,
        readerr: counter::readerr,
        add: counter::add,
        set: counter::set,
        wait: counter::wait,
        adderr: counter::adderr,
        seterr: counter::seterr,
    }
    ENDPOINT: fi_ops_ep { cancel: endpoint::cancel, getopt: endpoint::getopt, setopt: endpoint::setopt }
    CONNECTION: fi_ops_cm { setname: name::setname, getname: name::getname }
    MESSAGE: fi_ops_msg {
        recv: message::recv,
        recvv: message::recvv,
        recvmsg: message::recvmsg,
        send: message::send,
        sendv: message::sendv,
        sendmsg: message::sendmsg,
        inject: message::inject,
        senddata: message::senddata,
        injectdata: message::injectdata,
    }
    TAGGED: fi_ops_tagged {
        recv: tagged::recv,
        recvv: tagged::recvv,
        recvmsg: tagged::recvmsg,
        send: tagged::send,
        sendv: tagged::sendv,
        sendmsg: tagged::sendmsg,
        inject: tagged::inject,
        senddata: tagged::senddata,
        injectdata: tagged::injectdata,
    }
    RMA: fi_ops_rma {
        read: rma::read,
        readv: rma::readv,
        readmsg: rma::readmsg,
        write: rma::write,
        writev: rma::writev,
        writemsg: rma::writemsg,
        inject: rma::inject,
        writedata: rma::writedata,
        injectdata: rma::injectdata,
    }
    ATOMIC: fi_ops_atomic {
        write: atomic::write,
        writev: atomic::writev,
        writemsg: atomic::writemsg,
        inject: atomic::inject,
        readwrite: atomic::readwrite,
        readwritev: atomic::readwritev,
        readwritemsg: atomic::readwritemsg,
        compwrite: atomic::compwrite,
        compwritev: atomic::compwritev,
        compwritemsg: atomic::compwritemsg,
        writevalid: atomic::writevalid,
        readwritevalid: atomic::readwritevalid,
        compwritevalid: atomic::compwritevalid,
    }
}
