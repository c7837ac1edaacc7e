package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/globalnet/allocator"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/wake"
	"subctl/services"
)

// exportWorld is a cluster with Services, one of which is exported. Its ServiceExport has the
// condition Ready with a status.
func exportWorld(ready metav1.ConditionStatus, reason, message string) world {
	service := func(name string, kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec:       corev1.ServiceSpec{Type: kind},
		}
	}
	elsewhere := service("elsewhere", corev1.ServiceTypeExternalName)
	elsewhere.Spec.ExternalName = "db.example.com"
	export := &mcsv1alpha1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "web",
			Namespace:   "shop",
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "team": "blue"},
		},
	}
	export.Status.Conditions = []metav1.Condition{
		{Type: string(mcsv1alpha1.ServiceExportConditionReady), Status: ready, Reason: reason, Message: message},
	}
	return world{
		"west": {
			submariner("west"),
			service("web", corev1.ServiceTypeClusterIP),
			service("db", corev1.ServiceTypeClusterIP),
			elsewhere,
			export,
		},
	}
}

func exportedWorld() world {
	return exportWorld(metav1.ConditionTrue, string(mcsv1alpha1.ServiceExportReasonExported),
		"other clusters reach the Service at 242.0.255.254")
}

// discoveryExport is a cluster with service discovery and without a global network, whose Service
// web is exported, with the condition Conflict. It knows cluster east and, named like a hostile
// cluster would be, another one.
func discoveryExport(conflict metav1.ConditionStatus, message string, others ...string) world {
	w := exportWorld(metav1.ConditionTrue, "Exported", "published as web.shop.svc.clusterset.local to the clusters "+
		"of its clustersets")
	sub := w["west"][0].(*v1alpha1.Submariner)
	sub.Spec.GlobalCIDR = ""
	sub.Spec.ServiceDiscoveryEnabled = true
	export := w["west"][len(w["west"])-1].(*mcsv1alpha1.ServiceExport)
	export.Status.Conditions = append(export.Status.Conditions, metav1.Condition{
		Type: string(
			mcsv1alpha1.ServiceExportConditionConflict),
		Status:  conflict,
		Reason:  "PortConflict",
		Message: message,
	})
	for i, id := range others {
		o := member(submarinerv1.OperatorNamespace, id, "172.18.0.9", "vxlan", nil)[0]
		o.SetName(fmt.Sprintf("other-%d", i))
		w["west"] = append(w["west"], o)
	}
	own := member(submarinerv1.OperatorNamespace, "west", "172.18.0.2", "vxlan", nil)[0]
	own.SetLabels(nil) // not a copy
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "derived-u3k8h2", Namespace: "shop",
		Labels: map[string]string{mcsv1alpha1.LabelServiceName: "far"},
	}}
	page := &v1alpha1.ExportedServices{ObjectMeta: named("west-services-0")}
	page.Spec.ClusterID = "west"
	page.Spec.Services = []v1alpha1.ExportedService{exportRecordOf("shop", "web", "100.64.0.9", "")}
	w["west"] = append(w["west"], own, derived, page)
	return w
}

// withGlobal returns a world whose clusters have a global network, too.
func withGlobal(w world) world {
	for _, o := range w["west"] {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.GlobalCIDR = "242.0.0.0/16"
		case *mcsv1alpha1.ServiceExport:
			published := o.Status.Conditions[0]
			published.Type = services.ConditionPublished
			o.Status.Conditions[0].Message = "other clusters reach the Service at 242.0.255.254"
			o.Status.Conditions = append(o.Status.Conditions, published)
		}
	}
	return w
}

// unpublished returns a world whose exports the grants do not allow.
func unpublished(w world) world {
	for _, o := range w["west"] {
		if export, ok := o.(*mcsv1alpha1.ServiceExport); ok {
			c := meta.FindStatusCondition(export.Status.Conditions, services.ConditionPublished)
			c.Status = metav1.ConditionFalse
			c.Reason = services.ReasonNamespaceNotGranted
			c.Message = "the grant of this cluster does not allow exports from namespace shop"
		}
	}
	return w
}

// unseen returns a world whose exports the agent of service discovery has not seen.
func unseen(w world) world {
	for _, o := range w["west"] {
		if export, ok := o.(*mcsv1alpha1.ServiceExport); ok {
			export.Status.Conditions = export.Status.Conditions[:1]
		}
	}
	return w
}

// spread returns a world whose exports have the annotation spread.
func spread(w world) world {
	for _, o := range w["west"] {
		if export, ok := o.(*mcsv1alpha1.ServiceExport); ok {
			export.Annotations[v1alpha1.SpreadAnnotation] = "true"
		}
	}
	return w
}

// Where the kind is missing, a dry run is refused like the export itself.
func TestExportWithoutTheKind(t *testing.T) {
	for _, more := range []string{"", " --dry-run", " --dry-run -o yaml"} {
		g, stdout, stderr := testGlobals(t, exportedWorld(), "west")
		connect := g.Connect
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			c, err := connect(ctx, cfg)
			return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Get: func(
					ctx context.Context,
					c client.WithWatch,
					key client.ObjectKey,
					obj client.Object,
					opts ...client.GetOption,
				) error {
					if _, is := obj.(*mcsv1alpha1.ServiceExport); is {
						return &meta.NoKindMatchError{
							GroupKind: schema.GroupKind{Group: mcsv1alpha1.GroupName, Kind: "ServiceExport"},
						}
					}
					return c.Get(ctx, key, obj, opts...)
				},
			}), err
		}
		require.Equal(t, cli.ExitFailed, run(t.Context(), g, strings.Fields("export service db -n shop"+more)), more)
		require.Empty(t, stdout.String(), more)
		require.Contains(t, stderr.String(), "Error: this cluster has no ServiceExports", more)
	}
}

func TestExport(t *testing.T) {
	unsetWait(t)
	local := exportWorld(metav1.ConditionFalse, allocator.ReasonNoGlobalNetwork, "")
	withoutGlobal := submariner("west")
	withoutGlobal.Spec.GlobalCIDR = ""
	local["west"][0] = withoutGlobal
	alone := exportedWorld()
	alone["west"] = alone["west"][1:]
	for name, test := range map[string]struct {
		world world
		line  string
	}{
		"export":                 {exportedWorld(), "export service db -n shop --wait=false"},
		"export_dry":             {exportedWorld(), "export service db -n shop --dry-run"},
		"export_dry_yaml":        {exportedWorld(), "export service db -n shop --dry-run -o yaml"},
		"export_json":            {exportedWorld(), "export service db -n shop --wait=false -o json"},
		"export_again":           {exportedWorld(), "export service web -n shop"},
		"export_again_dry":       {exportedWorld(), "export service web -n shop --dry-run"},
		"export_local":           {local, "export service db -n shop"},
		"export_other_name":      {exportedWorld(), "export service dd -n shop"},
		"export_other_namespace": {exportedWorld(), "export service db"},
		"export_unknown":         {exportedWorld(), "export service payments -n shop"},
		"export_external_name":   {exportedWorld(), "export service elsewhere -n shop"},
		"export_not_joined":      {alone, "export service db -n shop"},
		"export_pending": {exportWorld(metav1.ConditionFalse, "Pending", "0 of 1 global addresses are "+
			"allocated: \x1b[2Jsee kubectl get globalingressips"), "export service web -n shop --timeout 1ms"},
		"export_no_agent": {exportWorld("", "", ""), "export service db -n shop --timeout 1ms"},
		"export_discovery": {
			discoveryExport("False", "none", "north", "east"),
			"export service web -n shop",
		},
		"export_discovery_alone": {discoveryExport("False", "none"), "export service web -n shop"},
		"export_discovery_conflict": {discoveryExport("True", "cluster \x1b[2Jeast has port 80,\nthis one 81",
			"e\x1b[31mast"), "export service web -n shop"},
		"export_discovery_no_agent": {discoveryExport("False", "none"), "export service db -n shop --timeout 1ms"},
		"export_discovery_global": {
			withGlobal(discoveryExport("False", "none", "east")),
			"export service web -n shop",
		},
		"export_discovery_unpublished": {
			unpublished(withGlobal(discoveryExport("False", "none", "east"))),
			"export service web -n shop --timeout 1ms",
		},
		"export_discovery_unseen": {
			unseen(withGlobal(discoveryExport("False", "none", "east"))),
			"export service web -n shop --timeout 1ms",
		},
		"export_discovery_derived": {discoveryExport("False", "none"), "export service derived-u3k8h2 -n shop"},
		"export_annotations_dry": {discoveryExport("False", "none"), "export service db -n shop --spread " +
			"--direct --dry-run"},
		"export_annotations_dry_yaml": {discoveryExport("False", "none"), "export service db -n shop --spread " +
			"--direct --dry-run -o yaml"},
		"export_annotations_change": {spread(discoveryExport("False", "none", "east")), "export service web -n " +
			"shop --spread=false --direct"},
		"export_annotations_same": {spread(discoveryExport("False", "none", "east")), "export service web -n " +
			"shop --spread --wait=false"},
		"unexport":              {exportedWorld(), "unexport service web -n shop"},
		"unexport_dry":          {exportedWorld(), "unexport service web -n shop --dry-run"},
		"unexport_yaml":         {exportedWorld(), "unexport service web -n shop -o yaml"},
		"unexport_not_exported": {exportedWorld(), "unexport service db -n shop"},
		"unexport_nothing":      {exportedWorld(), "unexport service web"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "export/"+name, runAtOnce(t, test.world, []string{"west"}, strings.Fields(test.line)...))
		})
	}
}

// A name that is wrong is refused with what a name may have.
func TestExportMistakes(t *testing.T) {
	const use = "use at most 63 lower case letters, digits and '-', with a letter or digit at both ends"
	long := strings.Repeat("a", 70)
	for line, want := range map[string]string{
		"export service " + long:            `"` + long + `" is not the name of a Service: ` + use,
		"unexport service web -n " + long:   `--namespace "` + long + `" is not a valid namespace: ` + use,
		"export service web --context nope": `there is no context "nope" in the kubeconfig: it has west`,
	} {
		r := runIn(t, world{}, []string{"west"}, strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", line, r.stderr)
		require.Contains(t, r.stderr, want, line)
	}
}

// What the commands write, and that a dry run writes nothing.
func TestExportWrites(t *testing.T) {
	g, _, stderr := testGlobals(t, exportedWorld(), "west")
	c, err := g.Client(t.Context())
	require.NoError(t, err)
	exported := func() []string {
		names, err := exports(t.Context(), c, "shop")
		require.NoError(t, err)
		return names
	}
	for _, step := range []struct {
		line string
		want []string
	}{
		{"export service db -n shop --dry-run", []string{"web"}},
		{"export service db -n shop --wait=false", []string{"db", "web"}},
		{"export service db -n shop --wait=false", []string{"db", "web"}},
		{"unexport service db -n shop --dry-run", []string{"db", "web"}},
		{"unexport service db -n shop", []string{"web"}},
		{"export service db -n shop --dry-run -o json", []string{"web"}},
	} {
		require.Equal(t, cli.ExitDone, run(t.Context(), g, strings.Fields(step.line)), "%s: %s", step.line, stderr)
		require.Equal(t, step.want, exported(), step.line)
	}
}

// export prints the address as soon as the agent has reported it.
func TestExportWaits(t *testing.T) {
	unsetWait(t)
	g, _, stderr := testGlobals(t, exportedWorld(), "west")
	c, err := g.Client(t.Context())
	require.NoError(t, err)
	done := make(chan int)
	go func() { done <- run(t.Context(), g, strings.Fields("export service db -n shop --timeout 2m")) }()
	key := client.ObjectKey{Namespace: "shop", Name: "db"}
	export := &mcsv1alpha1.ServiceExport{}
	for c.Get(t.Context(), key, export) != nil {
		require.NoError(t, wake.After(t.Context(), time.Millisecond))
	}
	export.Status.Conditions = []metav1.Condition{
		{
			Type:    string(mcsv1alpha1.ServiceExportConditionReady),
			Status:  metav1.ConditionTrue,
			Reason:  "Exported",
			Message: "other clusters reach the Service at 242.0.255.253",
		},
	}
	require.NoError(t, c.Update(t.Context(), export))
	require.Equal(t, cli.ExitDone, <-done)
	require.Contains(t, stderr.String(), "✓ other clusters reach the Service at 242.0.255.253")
}

// The flags change the annotations of an export that exists, and nothing else of it.
func TestExportAnnotations(t *testing.T) {
	g, _, stderr := testGlobals(t, spread(discoveryExport("False", "none", "east")), "west")
	c, err := g.Client(t.Context())
	require.NoError(t, err)
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	export := &mcsv1alpha1.ServiceExport{}
	const kubectl = corev1.LastAppliedConfigAnnotation
	for _, step := range []struct {
		flags string
		want  map[string]string
	}{
		{"--direct --dry-run", map[string]string{kubectl: "{}", "team": "blue", v1alpha1.SpreadAnnotation: "true"}},
		{"--direct", map[string]string{
			kubectl: "{}", "team": "blue", v1alpha1.SpreadAnnotation: "true",
			v1alpha1.DirectAnnotation: "true",
		}},
		{"", map[string]string{
			kubectl: "{}", "team": "blue", v1alpha1.SpreadAnnotation: "true",
			v1alpha1.DirectAnnotation: "true",
		}},
		{"--direct=false --spread=false", map[string]string{kubectl: "{}", "team": "blue"}},
	} {
		line := "export service web -n shop --wait=false " + step.flags
		require.Equal(t, cli.ExitDone, run(t.Context(), g, strings.Fields(line)), "%s: %s", line, stderr)
		require.NoError(t, c.Get(t.Context(), key, export))
		require.Equal(t, step.want, export.Annotations, line)
		require.Len(t, export.Status.Conditions, 2, line)
	}
}

// A user who may only edit the namespace is told the name, and not who sees it.
func TestExportWithoutRights(t *testing.T) {
	unsetWait(t)
	g, _, stderr := testGlobals(t, discoveryExport("False", "none", "east"), "west")
	connect := g.Connect
	g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
		c, err := connect(ctx, cfg)
		refuse := func(namespace string) error {
			if namespace != submarinerv1.OperatorNamespace {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "", errors.New("alice may not"))
		}
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
				opts ...client.GetOption,
			) error {
				return cmp.Or(refuse(key.Namespace), c.Get(ctx, key, obj, opts...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
				opts ...client.ListOption,
			) error {
				var all client.ListOptions
				return cmp.Or(refuse(all.ApplyOptions(opts).Namespace), c.List(ctx, list, opts...))
			},
		}), err
	}
	require.Equal(t, cli.ExitDone, run(t.Context(), g, strings.Fields("export service web -n shop")), stderr)
	require.Contains(t, stderr.String(), "✓ clusters that see it: all that share a clusterset with this one and have "+
		"namespace shop")
}

func TestExportCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"export service -n shop ":   "db\n:4\n",
		"unexport service -n shop ": "web\n:4\n",
		"export service -n ":        "\n:4\n",
		"export service db ":        ":4\n",
	} {
		r := runIn(t, exportedWorld(), []string{"west"}, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		require.Equal(t, strings.TrimPrefix(want, "\n"), r.stdout, line)
	}
}

// A user who lacks a right learns which ClusterRole to ask for.
func TestExportForbidden(t *testing.T) {
	o := &serviceChange{namespace: "shop"}
	require.ErrorContains(t,
		o.forEditors(apierrors.NewForbidden(schema.GroupResource{Resource: "serviceexports"}, "web", nil)),
		"ClusterRole edit in namespace shop")
}

// createExportable creates Service web, and the CRDs of ServiceExports and ServiceImports, which
// join installs with service discovery.
func createExportable(t *testing.T, c client.Client) {
	t.Helper()
	exports, err := cluster.ServiceExports()
	require.NoError(t, err)
	imports, err := cluster.ServiceImports()
	require.NoError(t, err)
	require.NoError(t, kube.Install(t.Context(), c, kube.FieldOwner, []client.Object{exports, imports}, nil))
	web := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	require.NoError(t, c.Create(t.Context(), web))
}

// export waits until the active gateways translate the address: one that is dead, or of an older
// version, is not waited for.
func TestExportWaitsForGateways(t *testing.T) {
	unsetWait(t)
	w := exportedWorld()
	is := ingressOf("web", submarinerv1.TargetClusterIPService, nil, "242.0.255.254")
	old := gateway("west", "gw-old", time.Second)
	dead := gateway("west", "gw-dead", time.Minute)
	dead.Status.Programmed = &submarinerv1.ProgrammedVersions{}
	late := gateway("west", "gw-late", time.Second)
	late.Status.Programmed = &submarinerv1.ProgrammedVersions{GlobalIngressIPs: "7"}
	sub := w["west"][0].(*v1alpha1.Submariner)
	sub.Spec.MultiActiveGatewayEnabled = true
	w["west"] = append(w["west"], is, old, dead, late)
	g, _, stderr := testGlobals(t, w, "west")
	c, err := g.Client(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(is), is)) // its version is 999
	require.Equal(t, cli.ExitTrouble, run(t.Context(), g, strings.Fields("export service web -n shop --timeout 1ms")))
	require.Contains(t, stderr.String(), "the address is allocated, and not yet programmed by gateway gw-late")

	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(late), late))
	late.Status.Programmed.GlobalIngressIPs = is.ResourceVersion
	require.NoError(t, c.Update(t.Context(), late))
	require.Equal(t, cli.ExitDone, run(t.Context(), g, strings.Fields("export service web -n shop --timeout 2m")),
		stderr)
}
