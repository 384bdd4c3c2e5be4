//! StreamsBuilder, KStream, KTable and effect(), lowered to a Topology.
