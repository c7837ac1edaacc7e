package cluster_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"subctl/api/crds"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// What agents may do is a promise: no Secrets, nothing outside the namespace but reading nodes, the
// addresses of the API servers and the cluster's own networks, nothing by wildcard.
func TestRightsAreLeast(t *testing.T) {
	for _, obj := range clustertest.Render(t, clustertest.Submariner()) {
		var rules []rbacv1.PolicyRule
		switch o := obj.(type) {
		case *rbacv1.ClusterRole:
			if crds.IsUserRole(o.Name) {
				continue // no agent is bound to it: see TestRightsOfUsers
			}
			rules = o.Rules
			for _, r := range rules {
				require.Subset(t, []string{"get", "list", "watch"}, r.Verbs)
				if slices.Equal(r.ResourceNames, []string{"kubernetes"}) {
					require.Equal(t, []string{"endpointslices"}, r.Resources)
					continue
				}
				// Networks of the cluster, and nothing secret.
				if slices.Contains([]string{"servicecidrs", "ippools"}, r.Resources[0]) {
					require.Equal(t, []string{"list"}, r.Verbs)
					require.Len(t, r.Resources, 1)
					continue
				}
				require.Equal(t, []string{"nodes"}, r.Resources)
			}
		case *rbacv1.Role:
			rules = o.Rules
		}
		for _, r := range rules {
			require.NotContains(t, r.Resources, "secrets")
			require.NotContains(t, append(append(r.Verbs, r.Resources...), r.APIGroups...), "*")
		}
	}
}

// What a compromised agent could do, asked of a real API server as whoever the agent
// is there: verb × resource × name, in the namespace of the agents.
func TestRightsOfAgents(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	const (
		gateway = cluster.GatewayName
		route   = cluster.RouteAgentName
		none    = ""
	)
	for _, test := range []struct{ verbs, group, resource, name, who string }{
		{"get list patch update create delete", "", "pods", "submariner-gateway-x7k2p", none},
		{"create", "", "pods/exec", "submariner-routeagent-x7k2p", none},
		{"patch update create delete", "apps", "daemonsets", route, none},
		{"get", "apps", "daemonsets", route, gateway},
		{"get", "apps", "daemonsets", gateway, none},
		{"get", "apps", "deployments", cluster.GlobalnetName, gateway},
		{"patch update create delete", "apps", "deployments", cluster.GlobalnetName, none},
		{"get list watch create patch update delete", "", "secrets", "submariner-cluster-key", none},
		{"create", "", "serviceaccounts/token", route, none},
		{"create patch update", "rbac.authorization.k8s.io", "rolebindings", route, none},
		{"patch update delete", "", "nodes", "gw-1", none},
		{"patch update delete", "submariner.io", "submariners", "submariner", none},
		{"patch update create delete", "", "configmaps", "cable-config", none},
		{"patch", "submariner.io", "submariners/status", "submariner", gateway},
		{"update", "submariner.io", "submariners/status", "submariner", none},
		{"patch", "submariner.io", "submariners/status", "another", none},

		{"get list watch", "", "nodes", "gw-1", gateway + " " + route},
		{"list", "networking.k8s.io", "servicecidrs", "", gateway},
		{"list", "crd.projectcalico.org", "ippools", "", gateway},
		{"patch", "submariner.io", "exportedservices/status", "west-services-0", gateway},
		{"update", "submariner.io", "exportedservices/status", "west-services-0", none},
		{"get watch create patch update delete", "networking.k8s.io", "servicecidrs", "kubernetes", none},
		{"create patch update delete", "crd.projectcalico.org", "ippools", "default", none},
		{"get list watch", "submariner.io", "submariners", "submariner", gateway + " " + route},
		{"get list watch", "submariner.io", "endpoints", "west-x", gateway + " " + route},
		{"create patch update delete", "submariner.io", "endpoints", "west-x", gateway},
		{"create patch update delete", "submariner.io", "clusters", "west", gateway},
		{"create get list watch patch update delete", "submariner.io", "exportedservices", "west-services-0", gateway},
		{"get watch", "submariner.io", "gateways", "gw-1", gateway},
		{"list", "submariner.io", "gateways", "", gateway + " " + route},
		{"get list watch", "", "configmaps", "cable-config", gateway},
		{"get list watch", "submariner.io", "routeagents", "gw-1", gateway + " " + route},
		{"create patch update", "submariner.io", "routeagents", "gw-1", route},

		// which ones: see TestHostileAgent
		{"get update", "coordination.k8s.io", "leases", "submariner-gateway-lock", gateway},
		{"list", "coordination.k8s.io", "leases", "", gateway},
		{"delete patch watch", "coordination.k8s.io", "leases", "submariner-gateway-lock", none},
		{"create", "coordination.k8s.io", "leases", "submariner-gateway-lock", gateway},
	} {
		for _, verb := range strings.Fields(test.verbs) {
			resource, sub, _ := strings.Cut(test.resource, "/")
			var may []string
			for _, who := range []string{gateway, route} {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + cluster.Namespace + ":" + who,
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb:        verb,
						Group:       test.group,
						Resource:    resource,
						Subresource: sub,
						Name:        test.name,
						Namespace:   cluster.Namespace,
					},
				}}
				require.NoError(t, admin.Create(t.Context(), review))
				if review.Status.Allowed {
					may = append(may, who)
				}
			}
			right := kube.Right{
				Verb:      verb,
				Group:     test.group,
				Resource:  test.resource,
				Namespace: cluster.Namespace,
				Name:      test.name,
			}
			require.Equal(t, test.who, strings.Join(may, " "), "%s", right)
		}
	}
}

// What Kubernetes adds to its ClusterRoles: who may view a namespace reads our objects there, who
// may edit it writes policies, GlobalEgressIPs and ServiceExports too, and who administers it
// changes how the cluster is joined.
func TestRightsOfUsers(t *testing.T) {
	allowed := map[string][]string{}
	for _, role := range crds.UserRoles() {
		require.Len(t, role.Labels, 1, role.Name)
		require.Equal(t, "true",
			role.Labels["rbac.authorization.k8s.io/aggregate-to-"+strings.TrimPrefix(role.Name, "submariner-")],
			role.Name)
		for _, r := range kube.Rights(role.Rules, "") {
			allowed[role.Name] = append(allowed[role.Name], r.Verb+" "+r.Resource)
		}
	}
	all, err := crds.All()
	require.NoError(t, err)
	for _, crd := range all {
		for _, verb := range []string{"get", "list", "watch"} {
			require.Contains(t, allowed["submariner-view"], verb+" "+crd.Spec.Names.Plural)
		}
	}
	for _, verb := range []string{"get", "list", "watch"} {
		require.Subset(t, allowed["submariner-view"], []string{verb + " serviceexports", verb + " serviceimports"})
	}
	require.Len(t, allowed["submariner-view"], 3*(len(all)+2), "view reads, and no more")
	var writes []string // and no status
	for _, resource := range []string{"cablepolicies", "globalegressips", "serviceexports"} {
		for _, verb := range []string{"create", "delete", "patch", "update"} {
			writes = append(writes, verb+" "+resource)
		}
	}
	require.ElementsMatch(t, writes, allowed["submariner-edit"])
	require.ElementsMatch(t, []string{"patch brokers", "update brokers", "patch submariners", "update submariners"},
		allowed["submariner-admin"])
}
