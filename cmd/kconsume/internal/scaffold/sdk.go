package scaffold

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Installed is where a package puts the SDKs.
const Installed = "/usr/share/kconsume/sdk"

// places are where a language's SDK may be below the directory that a person
// names, and the file that tells it.
func places(lang string) (dirs []string, sign string) {
	switch lang {
	case "go":
		return []string{".", "go"}, "plugin/serve.go"
	case "python":
		return []string{"plugins/sdk/python", "python", "."}, "pyproject.toml"
	case "node":
		return []string{"plugins/sdk/node", "node", "."}, "package.json"
	case "java":
		return []string{"plugins/sdk/java", "java", "."}, "handler/pom.xml"
	}
	return nil, ""
}

// plain are paths that no build file needs quoted.
var plain = regexp.MustCompile(`^[A-Za-z0-9/._+-]+$`)

// FindSDK returns the absolute directory of a language's SDK: in a checkout of
// kconsume, among the installed SDKs, or the directory itself.
func FindSDK(root, lang string) (string, error) {
	dirs, sign := places(lang)
	for _, d := range dirs {
		dir := filepath.Join(root, d)
		if _, err := os.Stat(filepath.Join(dir, sign)); err == nil {
			dir, err := filepath.Abs(dir)
			if err != nil || plain.MatchString(dir) {
				return dir, err
			}
			return "", fmt.Errorf("take the SDK from %s: its path has characters that have a meaning in build files: use one of letters, digits and / . _ + - only", dir)
		}
	}
	return "", fmt.Errorf("find the SDK for %s: no %s in %s: name a checkout of kconsume, or the directory of its SDKs", lang, sign, root)
}

// mavenVersion is the version in an SDK's pom.xml: what is built from it has it.
var mavenVersion = regexp.MustCompile(`<artifactId>kconsume-handler</artifactId>\s*<version>([0-9A-Za-z.-]+)</version>`)

// javaVersion is the version of Java's SDK in a directory.
func javaVersion(dir string) (string, error) {
	pom, err := os.ReadFile(filepath.Join(dir, "handler", "pom.xml"))
	if err != nil {
		return "", fmt.Errorf("read the SDK's version: %w", err)
	}
	m := mavenVersion.FindSubmatch(pom)
	if m == nil {
		return "", fmt.Errorf("read the SDK's version: %s/handler/pom.xml names none for kconsume-handler: take the SDK of a matching kconsume", dir)
	}
	return string(m[1]), nil
}
