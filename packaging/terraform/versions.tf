terraform {
  # Validations of a variable may use locals since 1.9; the examples use ephemeral variables, since 1.10.
  required_version = ">= 1.10"
}
