//! Lock protocols under sampled schedules: more threads and longer scenarios than loom can exhaust,
//! with every access sequentially consistent.

mod biased;
mod gate;
mod leaders;
mod list;
mod locks;
mod rcu_map;
