// Lists what each minor version of Kubernetes knows, from its sources: the flags of kubelet and kube-proxy, the fields
// of their configurations, and the feature gates. Called by lists.sh, which downloads the modules.
//
// Arguments: for each version its name and the folders of k8s.io/kubernetes, kubelet, kube-proxy and component-base.
package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Lists of one version.
type lists struct {
	Version         string          `json:"version"`
	KubeletFlags    []string        `json:"kubeletFlags"`
	KubeProxyFlags  []string        `json:"kubeProxyFlags"`
	KubeletFields   []string        `json:"kubeletFields"`
	KubeProxyFields []string        `json:"kubeProxyFields"`
	Gates           map[string]gate `json:"gates"`
}

type gate struct {
	Default bool `json:"default"`
	Locked  bool `json:"locked"`
}

// Go files of a folder without tests, and without those for other systems.
func parse(folder string) []*ast.File {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		log.Fatalf("no Go files in %s", folder)
	}
	var files []*ast.File
	for _, path := range paths {
		other := []string{"_test.go", "_linux.go", "_others.go", "_other.go"}
		if slices.ContainsFunc(other, func(end string) bool { return strings.HasSuffix(path, end) }) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// The names in calls such as fs.StringVar(&x, "name", …) and fs.Var(x, "name", …).
func flags(folders ...string) []string {
	var found []string
	for _, folder := range folders {
		for _, file := range parse(folder) {
			ast.Inspect(file, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !(strings.HasSuffix(method.Sel.Name, "Var") || strings.HasSuffix(method.Sel.Name, "VarP")) {
					return true
				}
				if len(call.Args) > 2 {
					if name, ok := call.Args[1].(*ast.BasicLit); ok && name.Kind == token.STRING {
						text, _ := strconv.Unquote(name.Value)
						found = append(found, text)
					}
				}
				return true
			})
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func structs(folder string) map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	for _, file := range parse(folder) {
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				if body, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = body
				}
			}
			return true
		})
	}
	return found
}

// The paths of all fields of a type: `authentication.x509.clientCAFile`.
func fields(name, folder, componentBase string) []string {
	own, base := structs(folder), structs(filepath.Join(componentBase, "config/v1alpha1"))
	var found []string
	var walk func(body *ast.StructType, prefix string)
	walk = func(body *ast.StructType, prefix string) {
		for _, field := range body.Fields.List {
			if field.Tag == nil {
				continue
			}
			tag, _ := strconv.Unquote(field.Tag.Value)
			words := strings.Split(reflect.StructTag(tag).Get("json"), ",")
			if words[0] == "" || words[0] == "-" {
				continue
			}
			path := prefix + words[0]
			found = append(found, path)
			kind := field.Type
			if pointer, ok := kind.(*ast.StarExpr); ok {
				kind = pointer.X
			}
			switch of := kind.(type) {
			case *ast.Ident:
				if below, ok := own[of.Name]; ok {
					walk(below, path+".")
				}
			case *ast.SelectorExpr:
				if below, ok := base[of.Sel.Name]; ok {
					walk(below, path+".")
				}
			}
		}
	}
	body, ok := own[name]
	if !ok {
		log.Fatalf("no %s in %s", name, folder)
	}
	walk(body, "")
	slices.Sort(found)
	return found
}

func truth(fields map[string]ast.Expr, name string) bool {
	ident, ok := fields[name].(*ast.Ident)
	return ok && ident.Name == "true"
}

func fieldsOf(literal *ast.CompositeLit) map[string]ast.Expr {
	found := map[string]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				found[key.Name] = pair.Value
			}
		}
	}
	return found
}

// The gates with their state in this version: the last of its history.
func gates(folder string) map[string]gate {
	found := map[string]gate{}
	for _, file := range parse(folder) {
		ast.Inspect(file, func(node ast.Node) bool {
			pair, ok := node.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, isName := pair.Key.(*ast.Ident)
			value, isLiteral := pair.Value.(*ast.CompositeLit)
			if !isName || !isLiteral {
				return true
			}
			if count := len(value.Elts); count > 0 {
				if last, ok := value.Elts[count-1].(*ast.CompositeLit); ok {
					value = last
				}
			}
			spec := fieldsOf(value)
			if spec["PreRelease"] != nil {
				found[key.Name] = gate{truth(spec, "Default"), truth(spec, "LockToDefault")}
			}
			return true
		})
	}
	return found
}

func main() {
	var all []lists
	for arguments := os.Args[1:]; len(arguments) >= 5; arguments = arguments[5:] {
		version, kubernetes, kubelet, proxy, base := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
		logs := filepath.Join(base, "logs/api/v1")
		one := lists{
			Version:         version,
			KubeletFlags:    flags(filepath.Join(kubernetes, "cmd/kubelet/app/options"), logs),
			KubeProxyFlags:  flags(filepath.Join(kubernetes, "cmd/kube-proxy/app"), logs),
			KubeletFields:   fields("KubeletConfiguration", filepath.Join(kubelet, "config/v1beta1"), base),
			KubeProxyFields: fields("KubeProxyConfiguration", filepath.Join(proxy, "config/v1alpha1"), base),
			Gates:           gates(filepath.Join(kubernetes, "pkg/features")),
		}
		all = append(all, one)
	}
	out := json.NewEncoder(os.Stdout)
	for _, one := range all {
		if err := out.Encode(one); err != nil {
			log.Fatal(err)
		}
	}
}
