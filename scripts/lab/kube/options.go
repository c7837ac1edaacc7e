package main

import (
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserveropts "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmopts "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	schedopts "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// options are the parsed flags of the components. Their cobra commands are not used: each of them
// installs a signal handler for the whole process and panics when it is the second to do so. What
// those commands call is exported, and is what we call.
type options struct {
	apiserver   *apiserveropts.ServerRunOptions
	controllers *kcmopts.KubeControllerManagerOptions
	scheduler   *schedopts.Options
}

func (c *controlPlane) options(etcd string) (*options, error) {
	var o options
	var err error
	o.apiserver = apiserveropts.NewServerRunOptions()
	if err := parse(o.apiserver.Flags(), c.apiserverFlags(etcd)...); err != nil {
		return nil, fmt.Errorf("flags of the API server: %w", err)
	}
	if o.controllers, err = kcmopts.NewKubeControllerManagerOptions(); err != nil {
		return nil, fmt.Errorf("options of the controller manager: %w", err)
	}
	flags := o.controllers.Flags(kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases())
	if err := parse(flags, c.controllerFlags()...); err != nil {
		return nil, fmt.Errorf("flags of the controller manager: %w", err)
	}
	o.scheduler = schedopts.NewOptions()
	if err := parse(*o.scheduler.Flags, "--kubeconfig="+c.kubeconfig("scheduler"), "--secure-port=0",
		"--leader-elect=false", "--profiling=false"); err != nil {
		return nil, fmt.Errorf("flags of the scheduler: %w", err)
	}
	if err := o.apiserver.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, fmt.Errorf("setting feature gates: %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	logs.InitLogs()
	if err := logsapi.ValidateAndApply(o.apiserver.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return nil, fmt.Errorf("setting up logs: %w", err)
	}
	return &o, nil
}

func (c *controlPlane) apiserverFlags(etcd string) []string {
	// Endpoints/kubernetes may not hold a loopback address, and a cluster without nodes has no use
	// for it.
	reconciler := "lease"
	if netip.MustParseAddr(c.advertise).IsLoopback() {
		reconciler = "none"
	}
	return []string{
		fmt.Sprintf("--v=%d", c.verbosity),
		"--bind-address=" + c.bind, fmt.Sprintf("--secure-port=%d", c.port), "--advertise-address=" + c.advertise,
		"--endpoint-reconciler-type=" + reconciler,
		"--etcd-servers=" + etcd,
		"--service-cluster-ip-range=" + c.services,
		"--client-ca-file=" + c.key("ca.crt"),
		"--tls-cert-file=" + c.key("apiserver.crt"), "--tls-private-key-file=" + c.key("apiserver.key"),
		"--kubelet-certificate-authority=" + c.key("ca.crt"),
		"--kubelet-client-certificate=" + c.key(
			"kubelet-client.crt"), "--kubelet-client-key=" + c.key("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + c.domain,
		"--service-account-key-file=" + c.key("sa.pub"), "--service-account-signing-key-file=" + c.key("sa.key"),
		"--requestheader-client-ca-file=" + c.key("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.key("front-proxy.crt"), "--proxy-client-key-file=" + c.key("front-proxy.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
	}
}

func (c *controlPlane) controllerFlags() []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig("controller-manager"), "--secure-port=0", "--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.key("sa.key"), "--root-ca-file=" + c.key("ca.crt"),
		"--cluster-signing-cert-file=" + c.key("ca.crt"), "--cluster-signing-key-file=" + c.key("ca.key"),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + c.pods, "--node-cidr-mask-size=24",
		"--service-cluster-ip-range=" + c.services, "--cluster-name=" + c.name,
		"--node-monitor-grace-period=20s", "--profiling=false",
		// Every controller fetches a token of its own first: with the default of 20 a second that
		// takes 4 s.
		"--kube-api-qps=300", "--kube-api-burst=600",
	}
}

func (c *controlPlane) key(file string) string        { return c.path(filepath.Join("pki", file)) }
func (c *controlPlane) kubeconfig(user string) string { return c.path(user + ".kubeconfig") }

func parse(sets cliflag.NamedFlagSets, args ...string) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return fs.Parse(args)
}
