//! Names, labels and help of every metric, in one list.
