package exchange

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/crds"
	"subctl/api/submariner/v1alpha1"
)

// aPage returns a page with a Service of each type.
func aPage() *v1alpha1.ExportedServicesSpec {
	return &v1alpha1.ExportedServicesSpec{ClusterID: "west", Pages: 1, Services: []v1alpha1.ExportedService{{
		Namespace: "shop",
		Name:      "db",
		Headless:  true,
		Ports:     []v1alpha1.ExportedPort{{Name: "sql", Port: 5432, AppProtocol: "x.io/sql"}},
		Endpoints: []v1alpha1.ExportedEndpoints{{Targets: []int32{5432}, Pods: []v1alpha1.ExportedEndpoint{
			{IP: "10.2.0.1", Hostname: "db-0", Zone: "a"}, {IP: "10.2.0.2", State: v1alpha1.EndpointServing},
		}}},
	}, {
		Namespace: "shop", Name: "web", Address: "10.1.0.1",
		Ports: []v1alpha1.ExportedPort{{Name: "http", Port: 80}, {Name: "dns", Port: 53, Protocol: "UDP"}},
		Endpoints: []v1alpha1.ExportedEndpoints{
			{Targets: []int32{8080, 0}, Pods: []v1alpha1.ExportedEndpoint{{IP: "10.2.0.3"}}},
		},
	}, {
		Namespace: "shop-2", Name: "web", Address: "10.1.0.2", Ports: []v1alpha1.ExportedPort{{Port: 80}},
	}}}
}

func TestCheckPage(t *testing.T) {
	require.Empty(t, checkPage(aPage()))
	require.Empty(t, checkPage(&v1alpha1.ExportedServicesSpec{ClusterID: "west"}), "no Services")
	require.Equal(t, []string{"10.2.0.1", "10.2.0.2", "10.1.0.1", "10.2.0.3", "10.1.0.2"}, addressesOf(aPage()))
	require.Equal(t, []string{"shop", "shop-2"}, namespacesOf(aPage()))
	long := strings.Repeat("x", 254)
	for want, change := range map[string]func(p *v1alpha1.ExportedServicesSpec, db, web *v1alpha1.ExportedService){
		"spec.pages is 65, not 0 to 64": func(p *v1alpha1.ExportedServicesSpec, _, _ *v1alpha1.ExportedService) {
			p.Pages = 65
		},
		"spec.pages is -1, not 0 to 64": func(p *v1alpha1.ExportedServicesSpec, _, _ *v1alpha1.ExportedService) {
			p.Pages = -1
		},
		"it has 257 Services, more than 256": func(p *v1alpha1.ExportedServicesSpec, _, _ *v1alpha1.ExportedService) {
			p.Services = slices.Repeat(p.Services[:1], 257)
		},
		"Service shop/db is listed twice, or out of order": func(
			p *v1alpha1.ExportedServicesSpec,
			_, _ *v1alpha1.ExportedService,
		) {
			p.Services[1] = p.Services[0]
		},
		"Service shop/web is listed twice, or out of order": func(
			p *v1alpha1.ExportedServicesSpec,
			_, _ *v1alpha1.ExportedService,
		) {
			p.Services[1], p.Services[2] = p.Services[2], p.Services[1]
		},
		"Service ../web: namespace and name must be DNS labels": func(
			p *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Namespace = ".."
			db.Name = "web"
		},
		"Service shop/a.b: namespace and name must be DNS labels": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Name = "a.b"
		},
		"Service shop/db: it has 33 ports, more than 32": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Ports = slices.Repeat(db.Ports, 33)
		},
		"Service shop/db: it has 17 groups of endpoints, more than 16": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints = slices.Repeat(db.Endpoints, 17)
		},
		"Service shop/db: it has more than 32 labels or annotations": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Labels = map[string]string{}
			for i := range 33 {
				db.Labels[fmt.Sprint(i)] = ""
			}
		},
		"Service shop/db: internalTrafficPolicy or trafficDistribution has more than 63 bytes": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.TrafficDistribution = long
		},
		`Service shop/web: address "fd00::1" is no IPv4 address`: func(
			_ *v1alpha1.ExportedServicesSpec,
			_, web *v1alpha1.ExportedService,
		) {
			web.Address = "fd00::1"
		},
		`Service shop/web: address "10.0.0.0/8" is no IPv4 address`: func(
			_ *v1alpha1.ExportedServicesSpec,
			_, web *v1alpha1.ExportedService,
		) {
			web.Address = "10.0.0.0/8"
		},
		`Service shop/db: endpoint "010.1.1.1" is no IPv4 address`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods[0].IP = "010.1.1.1"
		},
		`Service shop/db: endpoint "" is no IPv4 address`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods[1].IP = ""
		},
		`Service shop/db: the port name "A" is no DNS label`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Ports[0].Name = "A"
		},
		"Service shop/db: port 0 is not 1 to 65535": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Ports[0].Port = 0
		},
		`Service shop/db: protocol "ICMP" is not TCP, UDP or SCTP`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Ports[0].Protocol = "ICMP"
		},
		"Service shop/db: appProtocol has more than 253 bytes": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Ports[0].AppProtocol = long
		},
		"Service shop/web: a group of endpoints has 1 target ports, and the Service 2 ports": func(
			_ *v1alpha1.ExportedServicesSpec,
			_, web *v1alpha1.ExportedService,
		) {
			web.Endpoints[0].Targets = web.Endpoints[0].Targets[:1]
		},
		"Service shop/web: target port 65536 is not 0 to 65535": func(
			_ *v1alpha1.ExportedServicesSpec,
			_, web *v1alpha1.ExportedService,
		) {
			web.Endpoints[0].Targets[0] = 65536
		},
		"Service shop/db: a group has 257 endpoints, more than 256": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods = slices.Repeat(db.Endpoints[0].Pods[:1], 257)
		},
		`Service shop/db: the hostname "db.0" of endpoint 10.2.0.1 is no DNS label`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods[0].Hostname = "db.0"
		},
		"Service shop/db: the zone of endpoint 10.2.0.1 has more than 63 bytes": func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods[0].Zone = long
		},
		`Service shop/db: the state "Well" of endpoint 10.2.0.1 is unknown`: func(
			_ *v1alpha1.ExportedServicesSpec,
			db, _ *v1alpha1.ExportedService,
		) {
			db.Endpoints[0].Pods[0].State = "Well"
		},
	} {
		t.Run(want, func(t *testing.T) {
			p := aPage()
			change(p, &p.Services[0], &p.Services[1])
			require.Equal(t, want, checkPage(p))
		})
	}
}

// The bounds that readers check are those of the CRD.
func TestBoundsOfPagesAreThoseOfTheCRD(t *testing.T) {
	all, err := crds.All()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Names.Kind == "ExportedServices"
	})
	spec := all[i].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	service := spec["services"].Items.Schema.Properties
	group := service["endpoints"].Items.Schema.Properties
	require.EqualValues(t, v1alpha1.MaxExportPages, *spec["pages"].Maximum)
	for most, in := range map[*int64]int{
		spec["services"].MaxItems:                                         v1alpha1.MaxPageServices,
		service["ports"].MaxItems:                                         v1alpha1.MaxExportedPorts,
		service["endpoints"].MaxItems:                                     v1alpha1.MaxExportedGroups,
		group["pods"].MaxItems:                                            v1alpha1.MaxExportedPods,
		group["targets"].MaxItems:                                         v1alpha1.MaxExportedPorts,
		service["labels"].MaxProperties:                                   v1alpha1.MaxExportedLabels,
		service["annotations"].MaxProperties:                              v1alpha1.MaxExportedLabels,
		group["pods"].Items.Schema.Properties["zone"].MaxLength:           maxLabel,
		service["ports"].Items.Schema.Properties["appProtocol"].MaxLength: v1alpha1.MaxAppProtocol,
	} {
		require.EqualValues(t, in, *most)
	}
}

// A cluster may give its pages exactly the names of v1alpha1.ExportedServicesName.
func TestNamesOfPages(t *testing.T) {
	names := exportedServices().Named.Names
	for n := range v1alpha1.MaxExportPages {
		name := v1alpha1.ExportedServicesName("west", n)
		require.True(t, names.Owns("west", name), name)
		require.False(t, names.Owns("west-services-1", name), name)
	}
	for _, id := range []string{"west", "west-services", "west-services-1"} {
		for _, rest := range []string{"64", "99", "100", "01", "-1", "", "x", "1-services-1"} {
			name := id + "-services-" + rest
			_, ok := v1alpha1.ExportedServicesPage(id, name)
			require.Equal(t, ok, names.Owns(id, name), name)
			require.False(t, ok, name)
		}
	}
}

// The copy of a page that is too large to be kept is replaced when the page has shrunk.
func TestStubOfAPage(t *testing.T) {
	k := exportedServices()
	page := &v1alpha1.ExportedServices{ObjectMeta: metav1.ObjectMeta{Name: "west-services-0"}, Spec: *aPage()}
	stub := k.stub(page, 20_000)
	require.Contains(t, k.flaw(stub, "west"), "it has 20000 bytes, more than 16384")
	b, err := json.Marshal(stub)
	require.NoError(t, err)
	require.Less(t, len(b), 512)
}
