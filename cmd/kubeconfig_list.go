package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

// loader reads the kubeconfig: the files of --kubeconfig, which may be several as in
// $KUBECONFIG, or those of $KUBECONFIG.
func (g *globals) loader() (clientcmd.ClientConfig, error) {
	files := slices.DeleteFunc(filepath.SplitList(*g.kube.KubeConfig), func(f string) bool { return f == "" })
	if len(files) < 2 {
		return g.kube.ToRawKubeConfigLoader(), nil
	}
	for _, file := range files { // clientcmd would pass over what is not there
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("reading the kubeconfig: %w", err)
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, DefaultClientConfig: &clientcmd.DefaultClientConfig}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, g.overrides()), nil
}

// overrides are kubectl's flags, but for --kubeconfig: genericclioptions keeps them to
// itself, and takes one file.
func (g *globals) overrides() *clientcmd.ConfigOverrides {
	k := g.kube
	o := &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults, CurrentContext: *k.Context, Timeout: *k.Timeout}
	o.Context.Cluster, o.Context.AuthInfo = *k.ClusterName, *k.AuthInfoName
	o.ClusterInfo.Server, o.ClusterInfo.TLSServerName = *k.APIServer, *k.TLSServerName
	o.ClusterInfo.CertificateAuthority, o.ClusterInfo.InsecureSkipTLSVerify = *k.CAFile, *k.Insecure
	o.ClusterInfo.DisableCompression, o.ClusterInfo.ProxyURL = *k.DisableCompression, *k.ProxyURL
	o.AuthInfo.ClientCertificate, o.AuthInfo.ClientKey = *k.CertFile, *k.KeyFile
	o.AuthInfo.Impersonate, o.AuthInfo.ImpersonateUID, o.AuthInfo.ImpersonateGroups = *k.Impersonate, *k.ImpersonateUID, *k.ImpersonateGroup
	for _, extra := range *k.ImpersonateUserExtra {
		if key, value, ok := strings.Cut(extra, "="); ok {
			if o.AuthInfo.ImpersonateUserExtra == nil {
				o.AuthInfo.ImpersonateUserExtra = map[string][]string{}
			}
			o.AuthInfo.ImpersonateUserExtra[key] = append(o.AuthInfo.ImpersonateUserExtra[key], value)
		}
	}
	return o
}
