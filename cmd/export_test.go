package cmd

import (
	"context"
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

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// exportWorld is a cluster with Services, one of which is exported. Its ServiceExport has the condition Ready with a status.
func exportWorld(ready metav1.ConditionStatus, reason, message string) world {
	service := func(name string, kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: corev1.ServiceSpec{Type: kind}}
	}
	elsewhere := service("elsewhere", corev1.ServiceTypeExternalName)
	elsewhere.Spec.ExternalName = "db.example.com"
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "team": "blue"}}}
	export.Status.Conditions = []metav1.Condition{{Type: string(mcsv1alpha1.ServiceExportConditionReady), Status: ready, Reason: reason, Message: message}}
	return world{"west": {submariner("west"), service("web", corev1.ServiceTypeClusterIP), service("db", corev1.ServiceTypeClusterIP), elsewhere, export}}
}

func exportedWorld() world {
	return exportWorld(metav1.ConditionTrue, string(mcsv1alpha1.ServiceExportReasonExported), "other clusters reach the Service at 242.0.255.254")
}

// Where the kind is missing, a dry run is refused like the export itself.
func TestExportWithoutTheKind(t *testing.T) {
	for _, more := range []string{"", " --dry-run", " --dry-run -o yaml"} {
		g, stdout, stderr := testGlobals(t, exportedWorld(), "west")
		connect := g.Connect
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			c, err := connect(ctx, cfg)
			return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
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
	local := exportWorld(metav1.ConditionFalse, mesh.ReasonNoGlobalNetwork, "")
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
		"export_pending":         {exportWorld(metav1.ConditionFalse, "Pending", "0 of 1 global addresses are allocated: \x1b[2Jsee kubectl get globalingressips"), "export service web -n shop --timeout 1ms"},
		"export_no_agent":        {exportWorld("", "", ""), "export service db -n shop --timeout 1ms"},
		"unexport":               {exportedWorld(), "unexport service web -n shop"},
		"unexport_dry":           {exportedWorld(), "unexport service web -n shop --dry-run"},
		"unexport_yaml":          {exportedWorld(), "unexport service web -n shop -o yaml"},
		"unexport_not_exported":  {exportedWorld(), "unexport service db -n shop"},
		"unexport_nothing":       {exportedWorld(), "unexport service web"},
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
	key, export := client.ObjectKey{Namespace: "shop", Name: "db"}, &mcsv1alpha1.ServiceExport{}
	for c.Get(t.Context(), key, export) != nil {
		require.NoError(t, wake.After(t.Context(), time.Millisecond))
	}
	export.Status.Conditions = []metav1.Condition{{Type: string(mcsv1alpha1.ServiceExportConditionReady), Status: metav1.ConditionTrue, Reason: "Exported", Message: "other clusters reach the Service at 242.0.255.253"}}
	require.NoError(t, c.Update(t.Context(), export))
	require.Equal(t, cli.ExitDone, <-done)
	require.Contains(t, stderr.String(), "✓ other clusters reach the Service at 242.0.255.253")
}

func TestExportCompletion(t *testing.T) {
	for line, want := range map[string]string{"export service -n shop ": "db\n:4\n", "unexport service -n shop ": "web\n:4\n", "export service -n ": "\n:4\n", "export service db ": ":4\n"} {
		r := runIn(t, exportedWorld(), []string{"west"}, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		require.Equal(t, strings.TrimPrefix(want, "\n"), r.stdout, line)
	}
}

// A user who lacks a right learns which ClusterRole to ask for.
func TestExportForbidden(t *testing.T) {
	o := &serviceChange{namespace: "shop"}
	require.ErrorContains(t, o.forEditors(apierrors.NewForbidden(schema.GroupResource{Resource: "serviceexports"}, "web", nil)), "ClusterRole edit in namespace shop")
}

// createExportable creates Service web, and the CRD of ServiceExports, which join installs with a global network.
func createExportable(t *testing.T, c client.Client) {
	t.Helper()
	exports, err := cluster.ServiceExports()
	require.NoError(t, err)
	require.NoError(t, kube.Install(t.Context(), c, kube.FieldOwner, []client.Object{exports}, nil))
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, c.Create(t.Context(), web))
}

// export waits until the active gateways translate the address: one that is dead, or of an older
// version, is not waited for.
func TestExportWaitsForGateways(t *testing.T) {
	unsetWait(t)
	w := exportedWorld()
	is := ingressOf("web", submarinerv1.TargetClusterIPService, nil, "242.0.255.254")
	old, dead := gateway("west", "gw-old", time.Second), gateway("west", "gw-dead", time.Minute)
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
