// Package broker is where clusters meet: the objects a broker consists of, the
// join file that invites a cluster, the identity each member has there, and the
// two-way sync of Clusters, Endpoints and CablePolicies that the active gateway runs.
//
// A broker is namespaces, custom resources, RBAC and admission policies on some
// cluster's API server. No pod runs there, and no secret that clusters share is
// kept there: the pre-shared key travels in the join file, the broker holds its
// fingerprint.
//
// The package does not know flags, kubeconfigs or kernels: cmd and agent do.
package broker
