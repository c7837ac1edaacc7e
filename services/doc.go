// Package services decides which Services of which clusters a name stands for. All of it is pure.
//
//	own Services and ServiceExports → Export → records → Pages → other clusters
//	records of all clusters → Import → ServiceImports, derived Services, EndpointSlices → kube-proxy, DNS
//
// A cluster publishes an export record of each Service that it exports, in pages that its speaker
// signs. Nothing is aggregated on the broker: each importer merges the records of all clusters
// whose pages it has, and its own, by the rules of the Multi-Cluster Services API (KEP-1645). An
// imported Service has one address in each importing cluster, that of a derived Service without
// selector, and an EndpointSlice for each exporter.
//
// What a copy of a page claims was signed by its cluster, and its addresses are within the grant of
// that cluster: package exchange has verified that. Everything else in it may be hostile.
//
// The package neither reads nor writes: agents do (package agent/mesh). Names are answered by
// package dns.
package services
