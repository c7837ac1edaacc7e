package cmd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/services"
)

// serviceExport returns an export that is an hour old, with conditions "Ready False Pending:
// message".
func serviceExport(name string, conditions ...string) *mcsv1alpha1.ServiceExport {
	o := &mcsv1alpha1.ServiceExport{ObjectMeta: old("shop", name)}
	for _, text := range conditions {
		head, message, _ := strings.Cut(text, ": ")
		parts := strings.Fields(head)
		o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
			Type: parts[0], Status: metav1.ConditionStatus(parts[1]), Reason: parts[2], Message: message,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		})
	}
	return o
}

// exportRecordOf returns a record of port 80. Its endpoints have the states of pods, such as
// "ready,NotReady"; without pods it has an address.
func exportRecordOf(namespace, name, address, pods string) v1alpha1.ExportedService {
	r := v1alpha1.ExportedService{
		Namespace: namespace, Name: name, ExportedAt: now.Add(-time.Hour).Unix(), Address: address,
		Ready: true, Ports: []v1alpha1.ExportedPort{{Name: "http", Port: 80}},
	}
	if pods != "" {
		group := v1alpha1.ExportedEndpoints{Targets: []int32{8080}}
		for i, state := range strings.Split(pods, ",") {
			group.Pods = append(group.Pods, v1alpha1.ExportedEndpoint{
				IP: fmt.Sprintf("10.2.0.%d", i+1), State: v1alpha1.EndpointState(strings.TrimPrefix(state, "ready")),
			})
		}
		r.Endpoints = []v1alpha1.ExportedEndpoints{group}
	}
	return r
}

// recordPage returns a page of records, which another cluster has signed some time ago.
func recordPage(t *testing.T, id string, ago time.Duration,
	records ...v1alpha1.ExportedService,
) *v1alpha1.ExportedServices {
	t.Helper()
	page := &v1alpha1.ExportedServices{ObjectMeta: named(id + "-services-0")}
	page.Spec = v1alpha1.ExportedServicesSpec{ClusterID: id, Pages: 1, Services: records}
	if ago > 0 {
		key, err := trust.NewKey()
		require.NoError(t, err)
		token, err := key.SignStatement(trust.Statement{
			Kind: "ExportedServices", Name: page.Name, Sequence: now.Add(-ago).UnixMilli(), Fields: []byte("{}"),
		})
		require.NoError(t, err)
		page.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
		page.Annotations = map[string]string{submarinerv1.SignatureAnnotation: token}
	}
	return page
}

// serviceImport returns an import that is an hour old. Without an address, it is not ready; "None"
// stands for a headless Service.
func serviceImport(name, address string, from ...string) *mcsv1alpha1.ServiceImport {
	o := &mcsv1alpha1.ServiceImport{ObjectMeta: old("shop", name)}
	o.Labels = map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}
	o.Spec.Type = mcsv1alpha1.ClusterSetIP
	o.Spec.Ports = []mcsv1alpha1.ServicePort{{Name: "http", Port: 80}}
	switch address {
	case "":
	case "None":
		o.Spec.Type = mcsv1alpha1.Headless
	default:
		o.Spec.IPs = []string{address}
	}
	for _, id := range from {
		o.Status.Clusters = append(o.Status.Clusters, mcsv1alpha1.ClusterStatus{Cluster: id})
	}
	return o
}

// importSlice returns the EndpointSlice of an exporter, with "ready" and other endpoints, and hints
// for a zone.
func importSlice(name, from, zone, pods string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{ObjectMeta: old("shop", name+"-"+from)}
	o.Labels = map[string]string{
		mcsv1alpha1.LabelServiceName: name, mcsv1alpha1.LabelSourceCluster: from,
		discoveryv1.LabelManagedBy: services.ManagedBy,
	}
	for i, state := range strings.Split(pods, ",") {
		e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.2.0.%d", i+1)}}
		e.Conditions.Ready = new(state == "ready")
		if zone != "" {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	if pods == "unreachable" {
		o.Annotations = map[string]string{services.WithheldAnnotation: services.WithheldUnreachable}
	}
	return o
}

// discoveryDeployments returns what runs service discovery, with replicas that are available.
func discoveryDeployments(available int32) (out []client.Object) {
	for _, name := range []string{cluster.ServiceDiscoveryName, cluster.DNSName} {
		out = append(out, &appsv1.Deployment{ObjectMeta: named(name), Status: appsv1.DeploymentStatus{
			Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available, UnavailableReplicas: 1 - available,
		}})
	}
	return out
}

// discoveryMember returns what a cluster with service discovery holds of itself, and of clusters
// east and north.
func discoveryMember(objs ...client.Object) []client.Object {
	sub := submariner("west")
	sub.Spec.ServiceDiscoveryEnabled = true
	sub.Spec.GlobalCIDR = ""
	objs = append(objs, sub)
	for _, ns := range []string{"shop", "default"} {
		objs = append(objs, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	for id, ip := range map[string]string{"east": "172.18.0.9", "north": "172.18.0.8"} {
		objs = append(objs, member(submarinerv1.OperatorNamespace, id, ip, "vxlan", nil)...)
	}
	return objs
}

// servicesWorlds are situations of clusters with service discovery.
func servicesWorlds(t *testing.T) map[string]world {
	t.Helper()
	const valid, ready = "Valid True Valid: the Service can be exported", "Ready True Exported: published"
	well := append(discoveryMember(discoveryDeployments(1)...),
		serviceExport("web", valid, ready, "Conflict False NoConflicts: none"),
		serviceExport("big", valid, ready),
		recordPage(t, "west", 0, exportRecordOf("shop", "web", "100.64.0.9", "ready,NotReady"), exportRecordOf("shop",
			"big", "100.64.0.8", "")),
		recordPage(t, "east", 12*time.Second,
			exportRecordOf("shop", "web", "100.65.0.9", "ready,ready,Terminating"),
			exportRecordOf("shop", "db", "", "ready"), exportRecordOf("shop", "cache", "100.65.0.8", ""),
			exportRecordOf("payments", "ledger", "100.65.0.7", "")),
		recordPage(t, "north", 2*time.Hour, exportRecordOf("shop", "cache", "100.65.1.8", ""), exportRecordOf("shop",
			"web", "100.65.1.9", "ready")),
		serviceImport("web", "100.64.7.1", "east", "north", "west"), serviceImport("db", "None", "east"),
		serviceImport("cache", "100.64.7.2", "east", "north"), serviceImport("big", "100.64.7.3", "west"),
		importSlice("web", "west", "zone-a", "ready,no"), importSlice("web", "east", "elsewhere", "ready,ready,no"),
		importSlice("web", "north", "elsewhere", "unreachable"), importSlice("db", "east", "", "ready"),
		importSlice("cache", "east", "", "ready"), importSlice("cache", "north", "", "unreachable"), importSlice("big",
			"west", "", "ready,ready,no"))
	for _, o := range well {
		if page, ok := o.(*v1alpha1.ExportedServices); ok && page.Name == "east-services-0" {
			page.Spec.Services[1].Headless = true
		}
	}
	young := serviceExport("young")
	young.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	taken := serviceImport("taken", "100.64.9.9")
	taken.Labels = nil
	sick := append(discoveryMember(discoveryDeployments(0)...), young,
		serviceExport("late", valid, "Ready False Pending: its page is not published yet\x1b[2J"),
		serviceExport("none", "Valid False NoService: there is no Service none in namespace shop"),
		serviceExport("silent"),
		serviceExport("denied", valid, ready, "Published False NamespaceNotGranted: the grant does not allow it"),
		serviceExport("odd", valid, ready, "Conflict True PortConflict,TypeConflict: cluster east has port 80/TCP, "+
			"and this one 81/TCP\nand\x1b[31m more"),
		recordPage(t, "west", 0, exportRecordOf("shop", "odd", "100.64.0.9", "")),
		recordPage(t, "east", time.Minute, exportRecordOf("shop", "new", "100.65.0.9", ""),
			exportRecordOf("shop", "secret", "100.65.0.7", ""), exportRecordOf("shop", "stray", "10.9.9.9", ""),
			exportRecordOf("shop", "taken", "100.65.0.8", "")),
		serviceImport("full", "", "east"), taken)
	sick[slices.IndexFunc(sick, func(o client.Object) bool {
		_,
			is := o.(*v1alpha1.Submariner)
		return is
	})].(*v1alpha1.Submariner).
		Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{
		Imports: []v1alpha1.ImportRule{{
			Namespaces: []string{"sh*"}, Services: []string{"secret"},
			Clusters: []string{"north"},
		}},
	}
	for i := range 7 {
		sick = append(sick, serviceExport(fmt.Sprintf("more-%d", i), valid, "Ready False Pending: no room"))
	}
	off := submariner("west")
	return map[string]world{
		"well": {"west": well}, "sick": {"west": sick}, "off": {"west": {off}},
		"empty": {"west": discoveryMember(discoveryDeployments(1)...)},
		"two":   {"west": well, "east": {submariner("east")}},
		"alone": {"west": nil},
	}
}

func TestShowServices(t *testing.T) {
	for _, line := range []string{
		"well show services", "well show services -o wide", "well show services -o json", "sick show services",
		"off show services", "off show services -o json", "empty show services", "empty show services -o json",
		"two show services", "alone show services", "off show all",
	} {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			w := servicesWorlds(t)[words[0]]
			contexts := []string{"west"}
			if _, ok := w["east"]; ok {
				contexts = append(contexts, "east")
			}
			golden(t, "services/"+strings.Join(append([]string{words[0]}, words[2:]...), "_"), runIn(t, w, contexts,
				words[1:]...))
		})
	}
}

// NAME and --namespace choose Services, also for what is reported as a problem.
func TestShowServicesChosen(t *testing.T) {
	worlds := servicesWorlds(t)
	for _, test := range []struct {
		world, args      string
		code             int
		exports, imports string
	}{
		{"well", "", cli.ExitDone, "shop/big shop/web", "payments/ledger shop/big shop/cache shop/db shop/web"},
		{"well", "web", cli.ExitDone, "shop/web", "shop/web"},
		{"well", "-n shop db", cli.ExitDone, "", "shop/db"},
		{"well", "-n payments", cli.ExitDone, "", "payments/ledger"},
		{"well", "web -n payments", cli.ExitDone, "", ""},
		{"sick", "none", cli.ExitTrouble, "shop/none", ""},
	} {
		args := append([]string{"show", "services", "-o", "json"}, strings.Fields(test.args)...)
		r := runIn(t, worlds[test.world], []string{"west"}, args...)
		require.Equal(t, test.code, r.code, r.stderr)
		var rows []servicesRow
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &rows))
		var exports, imports []string
		for _, row := range rows {
			for _, e := range row.Exports {
				exports = append(exports, e.Namespace+"/"+e.Name)
			}
			for _, i := range row.Imports {
				imports = append(imports, i.Namespace+"/"+i.Name)
			}
		}
		require.Equal(t, test.exports, strings.Join(exports, " "), test.args)
		require.Equal(t, test.imports, strings.Join(imports, " "), test.args)
	}
	r := runIn(t, worlds["well"], []string{"west"}, "show", "services", "web", "-n", "payments")
	require.Contains(t, r.stderr, "no Service web of namespace payments is exported or imported: ")
	r = runIn(t, worlds["sick"], []string{"west"}, "show", "services", "none")
	require.NotContains(t, r.stderr, "shop/late")
	for line, want := range map[string]string{
		"show services ": "big cache db web", "show services -n payments ": "", "show services -n ": "default shop",
	} {
		got := runIn(t, worlds["well"], []string{"west"}, append([]string{"__complete"}, strings.Split(line,
			" ")...)...)
		values, _, _ := strings.Cut(got.stdout, ":4\n")
		require.Equal(t, want, strings.Join(strings.Fields(values), " "), line)
	}
}

// The tables have a column for the options of exports where there is one.
func TestShowServicesWithOptions(t *testing.T) {
	export := serviceExport("web", "Valid True Valid: ", "Ready True Ready: ")
	one := serviceImport("web", "100.64.7.1", "west")
	export.Annotations = map[string]string{v1alpha1.SpreadAnnotation: "true", v1alpha1.DirectAnnotation: "true"}
	one.Annotations = map[string]string{v1alpha1.SpreadAnnotation: "true"}
	w := world{"west": append(discoveryMember(discoveryDeployments(1)...), export, one,
		recordPage(t, "west", 0, exportRecordOf("shop", "web", "100.64.0.9", "ready")))}
	r := runIn(t, w, []string{"west"}, "show", "services")
	require.Contains(t, r.stdout, "ENDPOINTS   OPTIONS          STATE\n")
	require.Contains(t, r.stdout, "spread, direct   exported\n")
	require.Regexp(t, `web\.shop\.svc\.clusterset\.local .* spread +imported\n`, r.stdout)
}

// What others put into pages, imports and slices neither reaches the terminal as it is nor
// counts for another cluster.
func TestHostileServices(t *testing.T) {
	liar := recordPage(t, "east", time.Minute, exportRecordOf("shop", "stolen", "100.65.0.9", ""))
	liar.Spec.ClusterID = "north"
	red := recordPage(t, "north", time.Minute, exportRecordOf("shop\x1b[2J", "red\x1b[31m\nweb", "100.65.1.9", ""))
	foreign := serviceImport("mine", "100.64.7.9\x1b[5m", "\x1b[7mnobody")
	foreign.Labels = nil
	slice := importSlice("mine", "\x1b[1mwho", "", "ready")
	slice.Name = "hostile"
	other := importSlice("mine", "counted", "", "ready")
	delete(other.Labels, discoveryv1.LabelManagedBy)
	w := world{"west": append(discoveryMember(discoveryDeployments(1)...), liar, red, foreign, slice, other)}
	for _, format := range []string{"table", "wide"} {
		r := runIn(t, w, []string{"west"}, "show", "services", "-o", format)
		require.NotContains(t, r.stdout+r.stderr, "\x1b", format)
		require.NotContains(t, r.stdout, "stolen", format)
		require.NotContains(t, r.stdout, "counted", format)
		require.Regexp(t, `mine\.shop\.svc\.clusterset\.local .* foreign`, r.stdout)
		require.Contains(t, r.stdout, "mine.shop.svc.clusterset.local", format)
	}
	for _, args := range []string{"web db", "Shop/web", "-n Shop", "web\x1b[2J", "-n="} {
		r := runIn(t, w, []string{"west"}, append([]string{"show", "services"}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, r.code, args)
		require.NotContains(t, r.stderr, "\x1b")
	}
}

// imported returns the objects that the planner of the agent makes of what is exported, and what is
// exported.
func imported(t *testing.T, v services.View) []client.Object {
	t.Helper()
	for range 3 { // an import, then its Service and slices, then its address
		out := services.Import(v)
		for _, o := range out.Imports {
			o.UID = "1"
			if len(v.Imports) > 0 {
				o.Status = v.Imports[0].Status
			}
			v.Imports = []*mcsv1alpha1.ServiceImport{o}
		}
		for _, o := range out.Services {
			o.Spec.ClusterIP = "100.64.7.1"
			v.Services = []*corev1.Service{o}
		}
		for _, o := range out.Statuses {
			v.Imports[0].Status = o.Status
		}
		v.Slices = append(v.Slices, out.Slices...)
	}
	objs := discoveryMember(recordPage(t, "west", 0, v.Own...), v.Imports[0], v.Services[0])
	for _, o := range v.Slices {
		objs = append(objs, o)
	}
	for _, m := range v.Members {
		objs = append(objs, m.Pages[0])
	}
	return objs
}

// The states are those that follow from what the agent makes: whether it prefers own endpoints by
// hints, or withholds others.
func TestShowServicesAsTheAgentPlans(t *testing.T) {
	for _, test := range []struct {
		name, own string
		hints     bool
		want      map[string]string
	}{
		{"own endpoints first by hints", "ready", true, map[string]string{
			"west": "used", "east": "withheld",
			"north": "unreachable",
		}},
		{"withheld", "ready", false, map[string]string{"west": "used", "east": "withheld", "north": "unreachable"}},
		{"no own endpoint, with hints", "NotReady", true, map[string]string{
			"west": "not ready", "east": "used",
			"north": "unreachable",
		}},
		{"no own endpoint", "NotReady", false, map[string]string{
			"west": "not ready", "east": "used",
			"north": "unreachable",
		}},
		{"no own pod", "", false, map[string]string{"west": "not ready", "east": "used", "north": "unreachable"}},
	} {
		record := func(address, pods string) v1alpha1.ExportedService {
			return exportRecordOf("shop", "web", address, pods)
		}
		networks := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("100.65.0.0/16")}
		view := services.View{
			ClusterID: "west", Own: []v1alpha1.ExportedService{record("100.64.0.9", test.own)}, Zones: []string{""},
			Hints: test.hints, Namespaces: map[string]bool{"shop": true},
		}
		for _, id := range []string{"east", "north"} {
			view.Members = append(view.Members, services.Member{
				ID: id, Unreachable: id == "north", PodNetworks: networks, ServiceNetworks: networks,
				Pages: []*v1alpha1.ExportedServices{recordPage(t, id, time.Minute, record("100.65.0.9", "ready"))},
			})
		}
		r := runIn(t, world{"west": imported(t, view)}, []string{"west"}, "show", "services", "-o", "json")
		var rows []servicesRow
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &rows), r.stderr)
		got := map[string]string{}
		for _, x := range rows[0].Imports[0].Clusters {
			got[x.Cluster] = x.State
			require.Empty(t, x.Reason, test.name)
		}
		require.Equal(t, test.want, got, test.name)
		require.Equal(t, []string{"100.64.7.1"}, rows[0].Imports[0].IPs, test.name)
	}
}

// MODE is what is used: while the broker is away, the address of a Service stands for its pods.
func TestShowServicesWhileTheBrokerIsAway(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("100.65.0.0/16")}
	view := services.View{
		ClusterID: "west", Zones: []string{""}, Hints: true, Namespaces: map[string]bool{"shop": true},
		Own: []v1alpha1.ExportedService{exportRecordOf("shop", "web", "100.64.0.9", "ready,ready")},
		Members: []services.Member{{
			ID: "east", PodNetworks: networks, ServiceNetworks: networks,
			Pages: []*v1alpha1.ExportedServices{
				recordPage(t, "east", time.Minute, exportRecordOf("shop", "web", "100.65.0.9", "ready,ready,NotReady")),
			},
		}},
	}
	for contact, want := range map[services.Contact]string{
		services.ContactRead: "pods 2/3", services.ContactLost: "address 1/1",
	} {
		view.Contact = contact
		r := runIn(t, world{"west": imported(t, view)}, []string{"west"}, "show", "services", "-o", "json")
		var rows []servicesRow
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &rows), r.stderr)
		got := map[string]string{}
		for _, x := range rows[0].Imports[0].Clusters {
			got[x.Cluster] = x.Mode + " " + x.Endpoints.String()
		}
		require.Equal(t, map[string]string{"east": want, "west": "pods 2/2"}, got)
	}
}

// An import whose objects somebody else has made is shown as waiting, though it has an address.
func TestShowServicesOfATakenName(t *testing.T) {
	web := serviceImport("web", "100.64.7.1", "east")
	web.Status.Conditions = []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "NameTaken",
		Message: "somebody else has made EndpointSlice derived-web-east-0: delete or rename it",
	}}
	w := world{"west": append(discoveryMember(discoveryDeployments(1)...), web,
		recordPage(t, "east", time.Minute, exportRecordOf("shop", "web", "100.65.0.9", "ready")))}
	r := runIn(t, w, []string{"west"}, "show", "services")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Regexp(t, `(?m)^web\.shop\.svc\.clusterset\.local .* waiting$`, r.stdout)
	require.Regexp(t, `(?m)^shop/web +east .* not ready$`, r.stdout)
	require.Contains(t, r.stderr, "imported Service shop/web is not ready in this cluster: somebody else has made")
}
