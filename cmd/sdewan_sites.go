package cmd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/printer"
	"subctl/sdewan"
	"subctl/sdewan/install"
	"subctl/sdewan/sites"
)

const sitesLong = `Make the tunnels of all sites of a company out of a list: a file for each site, to apply in its
cluster with kubectl. Each branch gets a tunnel to each hub, with a key of its own, and both ends
prove who they are by the names of the sites.

The list is YAML:

  hubs:
  - name: hq
    address: 192.0.2.10           # that branches reach
    networks: [10.30.0.0/24]      # behind the CNF
    purpose: hub                  # its label sdewanPurpose; default: the name
  branches:
  - name: berlin
    networks: [192.168.1.0/24]
    policy: failover              # Mwan3Policy of the uplinks for its tunnels
  - name: rome
    networks: [192.168.2.0/24]
    namespace: branch             # default: default
  betweenBranches: true           # branches reach each other, through the hub

The objects have the label sdewan.subctl.io/site. In the cluster of the site hq, this applies them,
and removes tunnels to sites that are no longer in the list:

  kubectl apply -f tunnels/hq.yaml --prune -l sdewan.subctl.io/site=hq \\
    --prune-allowlist batch.sdewan.akraino.org/v1alpha1/IpsecSite \\
    --prune-allowlist batch.sdewan.akraino.org/v1alpha1/Mwan3Rule

Files that exist keep their keys: add a site to the list, and run the command again. They contain
keys, so that only you can read them. No cluster is contacted.`

type sdewanSites struct {
	*globals
	file, directory string
	format          *printer.Flag
}

func newSdewanSites(g *globals) *cobra.Command {
	o := &sdewanSites{globals: g}
	c := &cobra.Command{
		Use:   "sites FILE",
		Short: "Make the tunnels between hubs and branches, from a list",
		Long:  sitesLong,
		Example: `  # a file for each site in the directory tunnels
  subctl sdewan sites sites.yaml --directory tunnels`,
		Args: oneArgument("file", &o.file),
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	cli.ContactsNoCluster(c, "")
	c.Flags().StringVar(&o.directory, "directory", "",
		"directory of the files, which is created (required)")
	_ = c.MarkFlagDirname("directory")
	cli.Before(c, func() error {
		if o.directory == "" {
			return errors.New("--directory is missing: the directory of the files, such as tunnels")
		}
		return nil
	})
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

// siteFile is a row of the output; its JSON is a promise.
type siteFile struct {
	Site    string `json:"site"`
	Role    string `json:"role"` // hub or branch
	Tunnels int    `json:"tunnels"`
	NewKeys int    `json:"newKeys"`
	File    string `json:"file"`
}

func (o *sdewanSites) run() error {
	text, err := o.readFile(o.file, "sites")
	if err != nil {
		return cli.FileError(err)
	}
	list, err := sites.Parse(text)
	if err != nil {
		return cli.UsageError(fmt.Errorf("%s: %w", o.file, err))
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	known, err := o.keys(scheme, list)
	if err != nil {
		return err
	}
	keys := map[sites.Pair]string{}
	for _, p := range list.Pairs() {
		if keys[p] = known[p]; keys[p] == "" {
			keys[p] = install.NewPassword()
		}
	}
	objects, err := list.Objects(keys)
	if err != nil {
		return cli.UsageError(fmt.Errorf("%s: %w", o.file, err))
	}
	if err := os.MkdirAll(o.directory, 0o700); err != nil {
		return fmt.Errorf("creating --directory: %w", err)
	}
	rows := []siteFile{}
	for i, site := range list.Sites() {
		row := siteFile{Site: site.Name, Role: "branch", File: o.path(site.Name)}
		if i < len(list.Hubs) {
			row.Role = "hub"
		}
		for p := range list.Keys(site.Name, objects[site.Name]) {
			row.Tunnels++
			if known[p] == "" {
				row.NewKeys++
			}
		}
		if err := o.write(scheme, row.File, objects[site.Name]); err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if err := printer.Print(o.Out, o.format.Format(), rows, []printer.Column[siteFile]{
		{Head: "SITE", Cell: func(r siteFile) string { return r.Site }},
		{Head: "ROLE", Cell: func(r siteFile) string { return r.Role }},
		{Head: "TUNNELS", Cell: func(r siteFile) string { return fmt.Sprint(r.Tunnels) }},
		{Head: "NEW KEYS", Cell: func(r siteFile) string { return fmt.Sprint(r.NewKeys) }},
		{Head: "FILE", Cell: func(r siteFile) string { return r.File }},
	}); err != nil {
		return err
	}
	o.progress().Done("apply each file in the cluster of its site: subctl sdewan sites --help has the command")
	return nil
}

func (o *sdewanSites) path(site string) string { return filepath.Join(o.directory, site+".yaml") }

// keys returns the keys in the files that exist. An error is that the two ends of a tunnel have
// different ones, or that a file is none of these.
func (o *sdewanSites) keys(scheme *runtime.Scheme, list sites.List) (map[sites.Pair]string, error) {
	out := map[sites.Pair]string{}
	from := map[sites.Pair]string{}
	var errs []error
	for _, site := range list.Sites() {
		path := o.path(site.Name)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules, err := decodeRules(scheme, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s has not been written by this command, and is not overwritten: %w", path, err))
			continue
		}
		for p, key := range list.Keys(site.Name, rules) {
			if out[p] != "" && out[p] != key {
				errs = append(errs, fmt.Errorf(
					"%s and %s have different keys for their tunnel: delete one of the files, to use the key of the other",
					from[p], path))
			}
			out[p] = key
			from[p] = path
		}
	}
	return out, errors.Join(errs...)
}

// decodeRules reads a file that write has written.
func decodeRules(scheme *runtime.Scheme, text []byte) (out []sdewan.Rule, err error) {
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		o, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		r, ok := o.(sdewan.Rule)
		if !ok || r.GetLabels()[sites.Label] == "" {
			return nil, fmt.Errorf("an object in it has no label %s", sites.Label)
		}
		out = append(out, r)
	}
	return out, nil
}

// write replaces a file, which only the user can read.
func (o *sdewanSites) write(scheme *runtime.Scheme, path string, rules []sdewan.Rule) error {
	objects := make([]client.Object, len(rules))
	for i, r := range rules {
		objects[i] = r
	}
	var text bytes.Buffer
	if err := cli.PrintObjects(&text, scheme, printer.YAML, false, objects); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(o.directory, ".tmp-*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temporary.Name()) // unless it was renamed
	_, err = temporary.Write(text.Bytes())
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
